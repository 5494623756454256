//! Starts `toolhold demo` from the command line.

use crate::arguments::DemoArguments;
use crate::error::Error;
use crate::exit::Exit;
use crate::host;

pub(crate) fn run(arguments: &DemoArguments) -> Result<Exit, Error> {
    host::block_on(crate::demo::demo(arguments.json))
}
