//! `wasi:http` and `toolhold:host/secrets` for guests.

use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource};
use wasmtime_wasi_http::WasiHttpCtxView;
use wasmtime_wasi_http::p2::bindings::http::types::{ErrorCode, IoError};

use crate::guest::bindings::toolhold::host::secrets as wit;
use crate::guest::state::CallState;

impl CallState {
    pub(crate) fn http_view(&mut self) -> WasiHttpCtxView<'_> {
        let (http, table) = self.http_and_table();
        http.view(table)
    }
}

impl wit::Host for &mut CallState {
    fn exists(&mut self, name: String) -> wasmtime::Result<bool> {
        Ok(self.http.egress().is_some_and(|egress| egress.has_secret(&name)))
    }
}

/// Links the function that tells guests why a body ended early. The crate's own function expects
/// another error type than its body streams return, so it never finds a reason.
pub(crate) fn link_error_codes(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    let error_code = |mut store: StoreContextMut<'_, CallState>, (error,): (Resource<IoError>,)| {
        let (_, table) = store.data_mut().http_and_table();
        let error: &wasmtime::Error = table.get(&error)?;
        Ok((error.downcast_ref().map(body_error_code),))
    };
    linker.instance("wasi:http/types@0.2.12")?.func_wrap("http-error-code", error_code)?;
    linker.allow_shadowing(false);
    Ok(())
}

/// The code for an error of a body, out of those that [`Http`](crate::guest::http::Http) returns.
fn body_error_code(error: &wasmtime_wasi_http::Error) -> ErrorCode {
    use wasmtime_wasi_http::Error as GuestError;
    match error {
        GuestError::HttpResponseBodySize(most) => ErrorCode::HttpResponseBodySize(*most),
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
