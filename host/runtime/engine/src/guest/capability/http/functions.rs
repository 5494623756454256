//! `wasi:http` and `toolhold:host/secrets`.

use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource};
use wasmtime_wasi_http::p2::bindings::http::outgoing_handler;
use wasmtime_wasi_http::p2::bindings::http::types::{self as http_types, ErrorCode, IoError};
use wasmtime_wasi_http::{WasiHttp, WasiHttpCtxView};

use crate::guest::capability::bindings::toolhold::host::secrets;
use crate::guest::{CallState, HasState};

/// Links `wasi:http` for requests, and `toolhold:host/secrets`.
pub(super) fn link(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    secrets::add_to_linker::<CallState, HasState>(linker, |state| state)?;
    outgoing_handler::add_to_linker::<CallState, WasiHttp>(linker, view)?;
    let options = http_types::LinkOptions::default();
    http_types::add_to_linker::<CallState, WasiHttp>(linker, &options, view)?;
    link_error_codes(linker)
}

fn view(state: &mut CallState) -> WasiHttpCtxView<'_> {
    let (capabilities, table) = state.capabilities_and_table();
    capabilities.http.view(table)
}

impl secrets::Host for &mut CallState {
    fn exists(&mut self, name: String) -> wasmtime::Result<bool> {
        Ok(self.capabilities.http.egress().is_some_and(|egress| egress.has_secret(&name)))
    }
}

/// Links the function that tells a guest why a body ended early. The function of
/// `wasmtime_wasi_http` is replaced, because it doesn't know the error type of the host's bodies.
fn link_error_codes(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    linker.instance("wasi:http/types@0.2.12")?.func_wrap(
        "http-error-code",
        |mut store: StoreContextMut<'_, CallState>, (error,): (Resource<IoError>,)| {
            let error: &wasmtime::Error = store.data_mut().table().get(&error)?;
            // An error of another type has no code.
            let code = error.downcast_ref().map(body_error_code);
            Ok((code,))
        },
    )?;
    linker.allow_shadowing(false);
    Ok(())
}

fn body_error_code(error: &wasmtime_wasi_http::Error) -> ErrorCode {
    use wasmtime_wasi_http::Error as GuestError;
    match error {
        GuestError::HttpResponseBodySize(limit) => ErrorCode::HttpResponseBodySize(*limit),
        GuestError::HttpResponseTimeout => ErrorCode::HttpResponseTimeout,
        GuestError::HttpResponseIncomplete => ErrorCode::HttpResponseIncomplete,
        GuestError::HttpResponseContentCoding(coding) => {
            ErrorCode::HttpResponseContentCoding(coding.clone())
        }
        GuestError::HttpProtocolError => ErrorCode::HttpProtocolError,
        GuestError::ConnectionTerminated => ErrorCode::ConnectionTerminated,
        other => ErrorCode::InternalError(Some(other.to_string())),
    }
}
