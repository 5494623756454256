//! Lists the prompts and resources of a running upstream server.

use rmcp::ServiceError;
use rmcp::model::{PaginatedRequestParams, Prompt, Resource, ResourceTemplate};

use crate::MAX_OFFERS;
use crate::connection::{Connection, Cursors, MAX_PAGES};
use crate::reason::Reason;

#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub(crate) prompts: Vec<Prompt>,
    pub(crate) resources: Vec<Resource>,
    pub(crate) templates: Vec<ResourceTemplate>,
}

/// Collects the pages of a list. One entry above the limit shows that there are too many.
macro_rules! pages {
    ($connection:ident, $list:ident, $field:ident) => {{
        let mut all = Vec::new();
        let mut cursors = Cursors::default();
        for _ in 0..MAX_PAGES {
            let page = PaginatedRequestParams::default().with_cursor(cursors.current());
            let page = match $connection.peer().$list(Some(page)).await {
                Ok(page) => page,
                // Some servers declare the capability, but don't support the request.
                Err(ServiceError::McpError(_)) => break,
                Err(error) => return Err($connection.explain(&error)),
            };
            all.extend(page.$field);
            all.truncate(MAX_OFFERS + 1);
            if all.len() > MAX_OFFERS || !cursors.advance(page.next_cursor) {
                break;
            }
        }
        all
    }};
}

impl Connection {
    /// Lists the prompts and resources, if the server declares the capabilities.
    pub(crate) async fn listing(&self) -> Result<Listing, Reason> {
        let mut listing = Listing::default();
        let Some(info) = self.peer().peer_info() else { return Ok(listing) };
        if info.capabilities.prompts.is_some() {
            listing.prompts = pages!(self, list_prompts, prompts);
        }
        if info.capabilities.resources.is_some() {
            listing.resources = pages!(self, list_resources, resources);
            listing.templates = pages!(self, list_resource_templates, resource_templates);
        }
        Ok(listing)
    }
}
