//! Finds and calls the exports of the contract.

use toolhold_component::CONTRACT_VERSION;
use wasmtime::component::{ComponentExportIndex, Instance, InstancePre, TypedFunc};
use wasmtime::{AsContextMut, Store};

use crate::guest::CallState;
use crate::guest::bindings::exports::toolhold::tool::tools;
use crate::guest::bindings::filter::exports::toolhold::tool::filter;
use crate::guest::bindings::filter::{Filters, FiltersIndices};
use crate::guest::bindings::toolhold::tool::types;
use crate::guest::bindings::{Plugin, PluginIndices};

#[derive(Debug, thiserror::Error)]
pub(crate) enum ExportError {
    #[error("the export `{interface}` differs from the interface of this host: {error:#}")]
    NotDefined { interface: String, error: wasmtime::Error },
    #[error("the export `{0}` has no function `call-tool`")]
    NoCallTool(String),
}

fn has_export(pre: &InstancePre<CallState>, interface: &str) -> bool {
    pre.component().component_type().exports(pre.engine()).any(|(name, _)| name == interface)
}

pub(crate) struct ToolExports {
    indices: PluginIndices,
    /// The function `call-tool`. A call doesn't get it from `indices`, because wasmtime would then
    /// compare the types of all exports for each instance.
    call_tool: ComponentExportIndex,
}

#[derive(Clone)]
pub(crate) struct ListTools(PluginIndices);

pub(crate) struct CallTool(
    TypedFunc<(tools::Invocation,), (Result<types::Output, types::Failure>,)>,
);

impl ToolExports {
    /// Finds the exports for tools, if the component has them. They must match the contract.
    pub(crate) fn find(pre: &InstancePre<CallState>) -> Result<Option<Self>, ExportError> {
        let name = format!("toolhold:tool/tools@{CONTRACT_VERSION}");
        if !has_export(pre, &name) {
            return Ok(None);
        }
        let indices = match PluginIndices::new(pre) {
            Ok(indices) => indices,
            Err(error) => return Err(ExportError::NotDefined { interface: name, error }),
        };
        let component = pre.component();
        let call_tool = component
            .get_export_index(None, &name)
            .and_then(|tools| component.get_export_index(Some(&tools), "call-tool"));
        match call_tool {
            Some(call_tool) => Ok(Some(Self { indices, call_tool })),
            None => Err(ExportError::NoCallTool(name)),
        }
    }

    pub(crate) fn list(&self) -> ListTools {
        ListTools(self.indices.clone())
    }

    pub(crate) fn call_tool(
        &self,
        store: &mut Store<CallState>,
        instance: &Instance,
    ) -> wasmtime::Result<CallTool> {
        instance.get_typed_func(store, self.call_tool).map(CallTool)
    }
}

impl ListTools {
    pub(crate) async fn ask(
        self,
        store: &mut Store<CallState>,
        instance: &Instance,
    ) -> wasmtime::Result<Result<Vec<tools::Definition>, types::Failure>> {
        let plugin: Plugin = self.0.load(store.as_context_mut(), instance)?;
        plugin.toolhold_tool_tools().call_list_tools(store).await
    }
}

impl CallTool {
    pub(crate) async fn call(
        &self,
        store: &mut Store<CallState>,
        invocation: tools::Invocation,
    ) -> wasmtime::Result<Result<types::Output, types::Failure>> {
        self.0.call_async(store, (invocation,)).await.map(|(answer,)| answer)
    }
}

#[derive(Clone)]
pub(crate) struct FilterExports(FiltersIndices);

pub(crate) struct FilterInstance(Filters);

impl FilterExports {
    /// Finds the exports for filters, if the component has them. They must match the contract.
    pub(crate) fn find(pre: &InstancePre<CallState>) -> Result<Option<Self>, ExportError> {
        let name = format!("toolhold:tool/filter@{CONTRACT_VERSION}");
        if !has_export(pre, &name) {
            return Ok(None);
        }
        match FiltersIndices::new(pre) {
            Ok(indices) => Ok(Some(Self(indices))),
            Err(error) => Err(ExportError::NotDefined { interface: name, error }),
        }
    }

    pub(crate) fn load(
        &self,
        store: &mut Store<CallState>,
        instance: &Instance,
    ) -> wasmtime::Result<FilterInstance> {
        self.0.load(store, instance).map(FilterInstance)
    }
}

impl FilterInstance {
    /// Lists the filters. Must be the first call of an instance.
    pub(crate) async fn list(
        &self,
        store: &mut Store<CallState>,
    ) -> wasmtime::Result<Result<filter::Listing, types::Failure>> {
        self.0.toolhold_tool_filter().call_list_filters(store).await
    }

    /// Applies a filter to an output. The outer error means a trap.
    pub(crate) async fn apply(
        &self,
        store: &mut Store<CallState>,
        filter: &str,
        input: &filter::FilterInput,
    ) -> wasmtime::Result<Result<filter::Verdict, types::Failure>> {
        self.0.toolhold_tool_filter().call_apply(store, filter, input).await
    }
}
