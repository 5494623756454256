//! The exports of a component, in the version of the contract that it was built for.

use berth_component::{CURRENT, FROZEN};
use wasmtime::component::{ComponentExportIndex, Instance, InstancePre, TypedFunc};
use wasmtime::{AsContextMut, Store};

use crate::guest::bindings::berth::tool::types;
use crate::guest::bindings::exports::berth::tool::tools;
use crate::guest::bindings::filter::exports::berth::tool::filter;
use crate::guest::bindings::filter::{Filters, FiltersIndices};
use crate::guest::bindings::{Plugin, PluginIndices};
use crate::guest::state::CallState;
use crate::guest::v0_1;

/// Whether a component exports exactly this interface.
fn exports(pre: &InstancePre<CallState>, interface: &str) -> bool {
    pre.component().component_type().exports(pre.engine()).any(|(name, _)| name == interface)
}

/// The exports of a component for tools.
pub(crate) struct ToolExports {
    indices: ToolIndices,
    /// The export that calls a tool. A call looks up only that: the types of an export are compared
    /// for each instance.
    call_tool: ComponentExportIndex,
}

#[derive(Clone)]
enum ToolIndices {
    Current(PluginIndices),
    Frozen(v0_1::bindings::PluginIndices),
}

/// The function that lists the tools of an instance.
#[derive(Clone)]
pub(crate) struct ListTools(ToolIndices);

/// The function of an instance that calls a tool.
pub(crate) enum CallTool {
    Current(TypedFunc<(tools::Invocation,), (Result<types::Output, types::Failure>,)>),
    Frozen(v0_1::CallTool),
}

impl ToolExports {
    /// The exports for tools. `None`: it exports none.
    ///
    /// # Errors
    ///
    /// The export isn't what the contract says.
    pub(crate) fn find(pre: &InstancePre<CallState>) -> Result<Option<Self>, String> {
        let current = format!("berth:tool/tools@{CURRENT}");
        let frozen = format!("berth:tool/tools@{FROZEN}");
        let (name, indices) = if exports(pre, &current) {
            let indices = PluginIndices::new(pre).map(ToolIndices::Current);
            (current, indices)
        } else if exports(pre, &frozen) {
            let indices = v0_1::bindings::PluginIndices::new(pre).map(ToolIndices::Frozen);
            (frozen, indices)
        } else {
            return Ok(None);
        };
        let component = pre.component();
        let call_tool = component
            .get_export_index(None, &name)
            .and_then(|tools| component.get_export_index(Some(&tools), "call-tool"));
        match (indices, call_tool) {
            (Ok(indices), Some(call_tool)) => Ok(Some(Self { indices, call_tool })),
            (Err(error), _) => Err(not_defined(&name, &error)),
            (_, None) => Err(format!("its export `{name}` has no function `call-tool`")),
        }
    }

    /// The function that lists the tools.
    pub(crate) fn list(&self) -> ListTools {
        ListTools(self.indices.clone())
    }

    /// The function that calls a tool of an instance.
    pub(crate) fn call_tool(
        &self,
        store: &mut Store<CallState>,
        instance: &Instance,
    ) -> wasmtime::Result<CallTool> {
        Ok(match self.indices {
            ToolIndices::Current(_) => {
                CallTool::Current(instance.get_typed_func(store, self.call_tool)?)
            }
            ToolIndices::Frozen(_) => {
                CallTool::Frozen(instance.get_typed_func(store, self.call_tool)?)
            }
        })
    }
}

impl ListTools {
    /// Asks an instance for its tools.
    pub(crate) async fn ask(
        self,
        store: &mut Store<CallState>,
        instance: &Instance,
    ) -> wasmtime::Result<Result<Vec<tools::Definition>, String>> {
        match self.0 {
            ToolIndices::Current(indices) => {
                let plugin: Plugin = indices.load(store.as_context_mut(), instance)?;
                let listed = plugin.berth_tool_tools().call_list_tools(store).await?;
                Ok(listed.map_err(|failure| failure.message))
            }
            ToolIndices::Frozen(indices) => v0_1::list_tools(&indices, store, instance).await,
        }
    }
}

impl CallTool {
    /// Calls a tool.
    pub(crate) async fn call(
        &self,
        store: &mut Store<CallState>,
        invocation: tools::Invocation,
    ) -> wasmtime::Result<Result<types::Output, types::Failure>> {
        match self {
            Self::Current(function) => {
                function.call_async(store, (invocation,)).await.map(|(answer,)| answer)
            }
            Self::Frozen(function) => v0_1::call_tool(function, store, invocation).await,
        }
    }
}

/// The exports of a component for filters.
#[derive(Clone)]
pub(crate) enum FilterExports {
    Current(FiltersIndices),
    Frozen(v0_1::bindings::filter::FiltersIndices),
}

/// The filters of an instance.
pub(crate) enum FilterInstance {
    Current(Filters),
    Frozen(v0_1::bindings::filter::Filters),
}

impl FilterExports {
    /// The exports for filters. `None`: it exports none.
    ///
    /// # Errors
    ///
    /// The export isn't what the contract says.
    pub(crate) fn find(pre: &InstancePre<CallState>) -> Result<Option<Self>, String> {
        let current = format!("berth:tool/filter@{CURRENT}");
        let frozen = format!("berth:tool/filter@{FROZEN}");
        if exports(pre, &current) {
            let indices = FiltersIndices::new(pre);
            return indices
                .map(|found| Some(Self::Current(found)))
                .map_err(|error| not_defined(&current, &error));
        }
        if exports(pre, &frozen) {
            let indices = v0_1::bindings::filter::FiltersIndices::new(pre);
            return indices
                .map(|found| Some(Self::Frozen(found)))
                .map_err(|error| not_defined(&frozen, &error));
        }
        Ok(None)
    }

    /// The filters of an instance.
    pub(crate) fn load(
        &self,
        store: &mut Store<CallState>,
        instance: &Instance,
    ) -> wasmtime::Result<FilterInstance> {
        Ok(match self {
            Self::Current(indices) => FilterInstance::Current(indices.load(store, instance)?),
            Self::Frozen(indices) => FilterInstance::Frozen(indices.load(store, instance)?),
        })
    }
}

impl FilterInstance {
    /// Lists the filters, the first call of every instance.
    pub(crate) async fn list(
        &self,
        store: &mut Store<CallState>,
    ) -> wasmtime::Result<Result<filter::Listing, String>> {
        match self {
            Self::Current(filters) => {
                let listed = filters.berth_tool_filter().call_list_filters(store).await?;
                Ok(listed.map_err(|failure| failure.message))
            }
            Self::Frozen(filters) => v0_1::list_filters(filters, store).await,
        }
    }

    /// Applies a filter to an output.
    pub(crate) async fn apply(
        &self,
        store: &mut Store<CallState>,
        filter: &str,
        input: &filter::FilterInput,
    ) -> wasmtime::Result<Result<filter::Verdict, String>> {
        match self {
            Self::Current(filters) => {
                let verdict = filters.berth_tool_filter().call_apply(store, filter, input).await?;
                Ok(verdict.map_err(|failure| failure.message))
            }
            Self::Frozen(filters) => v0_1::apply(filters, store, filter, input).await,
        }
    }
}

fn not_defined(interface: &str, error: &wasmtime::Error) -> String {
    format!("it does not export `{interface}` as this host defines it: {error:#}")
}
