//! Decompresses the bodies of answers.

use std::io;
use std::pin::Pin;

use async_compression::tokio::bufread::{BrotliDecoder, GzipDecoder, ZstdDecoder};
use async_compression::zstd::DParameter;
use bytes::Bytes;
use futures_core::Stream;
use http::HeaderMap;
use http::header::CONTENT_ENCODING;
use tokio_util::io::{ReaderStream, StreamReader};
use toolhold_contract::text::{cut, neutral_line};

use super::Error;

/// The largest zstd window, as a power of two. RFC 9659 allows 8 MiB on the web.
const ZSTD_WINDOW: u32 = 23;

const PIECE_BYTES: usize = 16 * 1024;

/// Bytes of an unknown encoding in an error.
const MAX_SHOWN_CODING: usize = 64;

/// A decompressed body.
pub(super) type Stage = Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>;

/// The encoding of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    Identity,
    Gzip,
    Brotli,
    Zstd,
}

impl Coding {
    /// Returns the encoding of a body. Fails for an unknown encoding and for several encodings.
    pub(super) fn from_headers(headers: &HeaderMap) -> Result<Self, Error> {
        let mut values = headers.get_all(CONTENT_ENCODING).iter();
        let Some(value) = values.next() else { return Ok(Self::Identity) };
        if values.next().is_some() {
            return Err(Error::Coding(
                "the `Content-Encoding` header has several values".to_owned(),
            ));
        }
        let name = String::from_utf8_lossy(value.as_bytes()).trim().to_ascii_lowercase();
        match name.as_str() {
            "" | "identity" => Ok(Self::Identity),
            "gzip" | "x-gzip" => Ok(Self::Gzip),
            "br" => Ok(Self::Brotli),
            "zstd" => Ok(Self::Zstd),
            _ => Err(Error::Coding(format!("`{}`", neutral_line(cut(&name, MAX_SHOWN_CODING))))),
        }
    }

    /// Decompresses a body.
    pub(super) fn decode(
        self,
        wire: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    ) -> Stage {
        // The decoders need a stream that is `Unpin`, so the stream is boxed.
        let wire: Stage = Box::pin(wire);
        match self {
            Self::Identity => wire,
            Self::Gzip => {
                let mut decoder = GzipDecoder::new(StreamReader::new(wire));
                decoder.multiple_members(true);
                Box::pin(ReaderStream::with_capacity(decoder, PIECE_BYTES))
            }
            Self::Brotli => {
                let decoder = BrotliDecoder::new(StreamReader::new(wire));
                Box::pin(ReaderStream::with_capacity(decoder, PIECE_BYTES))
            }
            Self::Zstd => {
                let window = [DParameter::window_log_max(ZSTD_WINDOW)];
                let mut decoder = ZstdDecoder::with_params(StreamReader::new(wire), &window);
                decoder.multiple_members(true);
                Box::pin(ReaderStream::with_capacity(decoder, PIECE_BYTES))
            }
        }
    }
}
