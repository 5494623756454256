//! The tables of each language: which nodes define something, and which are names.

use code_model::Kind;

use crate::rule::{Find, Opens, Rule};
use crate::{c, find};

const fn rule(node: &'static str, kind: Kind, find: Find, opens: Opens) -> Rule {
    Rule { node, kind, find, opens }
}

/// A node whose field `name` is what it defines.
const fn named(node: &'static str, kind: Kind, opens: Opens) -> Rule {
    rule(node, kind, find::named, opens)
}

/// A node in which variables are local.
const fn body(node: &'static str) -> Rule {
    rule(node, Kind::Function, find::nothing, Opens::Body)
}

use Opens::{Body, Module, Nothing, Skipped, Type};

pub(crate) const RUST: &[Rule] = &[
    named("function_item", Kind::Function, Body),
    named("function_signature_item", Kind::Function, Nothing),
    named("struct_item", Kind::Struct, Type),
    named("union_item", Kind::Struct, Type),
    named("enum_item", Kind::Enum, Type),
    named("enum_variant", Kind::Variant, Type),
    named("trait_item", Kind::Interface, Type),
    named("type_item", Kind::Type, Nothing),
    named("associated_type", Kind::Type, Nothing),
    named("const_item", Kind::Constant, Nothing),
    named("static_item", Kind::Variable, Nothing),
    named("mod_item", Kind::Module, Module),
    named("macro_definition", Kind::Macro, Nothing),
    named("field_declaration", Kind::Field, Nothing),
    rule("impl_item", Kind::Type, find::rust_impl, Type),
];

pub(crate) const RUST_NAMES: &[&str] =
    &["identifier", "type_identifier", "field_identifier", "shorthand_field_identifier"];

pub(crate) const PYTHON: &[Rule] = &[
    named("function_definition", Kind::Function, Body),
    named("class_definition", Kind::Class, Type),
    rule("assignment", Kind::Variable, find::python_assignment, Nothing),
    rule("type_alias_statement", Kind::Type, find::python_type, Nothing),
    body("lambda"),
];

pub(crate) const PYTHON_NAMES: &[&str] = &["identifier"];

/// Also those of TypeScript, whose grammar is built on this one.
pub(crate) const JAVASCRIPT: &[Rule] = &[
    named("function_declaration", Kind::Function, Body),
    named("generator_function_declaration", Kind::Function, Body),
    named("function_expression", Kind::Function, Body),
    named("generator_function", Kind::Function, Body),
    body("arrow_function"),
    named("class_declaration", Kind::Class, Type),
    named("class", Kind::Class, Type),
    named("method_definition", Kind::Method, Body),
    rule("field_definition", Kind::Field, find::javascript_field, Nothing),
    rule("variable_declarator", Kind::Variable, find::javascript_variable, Nothing),
    rule("assignment_expression", Kind::Function, find::javascript_assignment, Nothing),
    rule("pair", Kind::Method, find::javascript_pair, Nothing),
    body("class_static_block"),
    named("abstract_class_declaration", Kind::Class, Type),
    named("interface_declaration", Kind::Interface, Type),
    named("type_alias_declaration", Kind::Type, Nothing),
    named("enum_declaration", Kind::Enum, Type),
    // Its values that have no number.
    named("enum_body", Kind::Variant, Nothing),
    named("enum_assignment", Kind::Variant, Nothing),
    named("function_signature", Kind::Function, Nothing),
    rule("method_signature", Kind::Method, find::member, Nothing),
    named("abstract_method_signature", Kind::Method, Nothing),
    rule("property_signature", Kind::Field, find::member, Nothing),
    rule("public_field_definition", Kind::Field, find::javascript_field, Nothing),
    named("internal_module", Kind::Module, Module),
    named("module", Kind::Module, Module),
];

pub(crate) const JAVASCRIPT_NAMES: &[&str] = &[
    "identifier",
    "property_identifier",
    "private_property_identifier",
    "shorthand_property_identifier",
    "type_identifier",
];

pub(crate) const GO: &[Rule] = &[
    named("function_declaration", Kind::Function, Body),
    rule("method_declaration", Kind::Method, find::go_method, Body),
    body("func_literal"),
    rule("type_spec", Kind::Type, find::go_type, Type),
    named("type_alias", Kind::Type, Nothing),
    named("const_spec", Kind::Constant, Nothing),
    named("var_spec", Kind::Variable, Nothing),
    rule("field_declaration", Kind::Field, find::member, Nothing),
    rule("method_elem", Kind::Method, find::member, Nothing),
];

pub(crate) const GO_NAMES: &[&str] =
    &["identifier", "field_identifier", "type_identifier", "package_identifier"];

/// C, and C++ on top of it.
pub(crate) const C_FAMILY: &[Rule] = &[
    rule("function_definition", Kind::Function, c::declared, Body),
    rule("declaration", Kind::Variable, c::declared, Nothing),
    rule("field_declaration", Kind::Field, c::declared, Nothing),
    rule("type_definition", Kind::Type, c::declared, Nothing),
    rule("struct_specifier", Kind::Struct, c::with_body, Type),
    rule("union_specifier", Kind::Struct, c::with_body, Type),
    rule("class_specifier", Kind::Class, c::with_body, Type),
    rule("enum_specifier", Kind::Enum, c::with_body, Type),
    named("enumerator", Kind::Variant, Nothing),
    named("preproc_def", Kind::Macro, Nothing),
    named("preproc_function_def", Kind::Macro, Nothing),
    rule("namespace_definition", Kind::Module, c::namespace, Module),
    named("alias_declaration", Kind::Type, Nothing),
    named("concept_definition", Kind::Interface, Nothing),
    body("lambda_expression"),
];

pub(crate) const C_FAMILY_NAMES: &[&str] =
    &["identifier", "field_identifier", "type_identifier", "namespace_identifier"];

pub(crate) const JAVA: &[Rule] = &[
    named("class_declaration", Kind::Class, Type),
    named("record_declaration", Kind::Class, Type),
    named("interface_declaration", Kind::Interface, Type),
    named("annotation_type_declaration", Kind::Interface, Type),
    named("enum_declaration", Kind::Enum, Type),
    named("enum_constant", Kind::Variant, Type),
    named("method_declaration", Kind::Method, Body),
    named("constructor_declaration", Kind::Method, Body),
    named("compact_constructor_declaration", Kind::Method, Body),
    named("annotation_type_element_declaration", Kind::Method, Nothing),
    rule("field_declaration", Kind::Field, find::declarators, Nothing),
    rule("constant_declaration", Kind::Constant, find::declarators, Nothing),
    body("lambda_expression"),
];

pub(crate) const JAVA_NAMES: &[&str] = &["identifier", "type_identifier"];

pub(crate) const CSHARP: &[Rule] = &[
    named("namespace_declaration", Kind::Module, Module),
    named("file_scoped_namespace_declaration", Kind::Module, Module),
    named("class_declaration", Kind::Class, Type),
    named("record_declaration", Kind::Class, Type),
    named("struct_declaration", Kind::Struct, Type),
    named("interface_declaration", Kind::Interface, Type),
    named("enum_declaration", Kind::Enum, Type),
    named("enum_member_declaration", Kind::Variant, Nothing),
    named("delegate_declaration", Kind::Type, Nothing),
    named("method_declaration", Kind::Method, Body),
    named("constructor_declaration", Kind::Method, Body),
    named("destructor_declaration", Kind::Method, Body),
    rule("operator_declaration", Kind::Method, find::csharp_operator, Body),
    rule("conversion_operator_declaration", Kind::Method, find::csharp_conversion, Body),
    named("local_function_statement", Kind::Function, Body),
    named("property_declaration", Kind::Field, Body),
    named("event_declaration", Kind::Field, Body),
    rule("field_declaration", Kind::Field, find::csharp_variables, Nothing),
    rule("event_field_declaration", Kind::Field, find::csharp_variables, Nothing),
    body("lambda_expression"),
];

pub(crate) const CSHARP_NAMES: &[&str] = &["identifier"];

pub(crate) const RUBY: &[Rule] = &[
    named("method", Kind::Method, Body),
    named("singleton_method", Kind::Method, Body),
    rule("class", Kind::Class, find::ruby_path, Type),
    rule("module", Kind::Module, find::ruby_path, Type),
    rule("assignment", Kind::Constant, find::ruby_constant, Nothing),
    named("alias", Kind::Method, Nothing),
    rule("call", Kind::Field, find::ruby_call, Nothing),
];

pub(crate) const RUBY_NAMES: &[&str] = &["identifier", "constant"];

pub(crate) const PHP: &[Rule] = &[
    named("namespace_definition", Kind::Module, Module),
    named("function_definition", Kind::Function, Body),
    named("method_declaration", Kind::Method, Body),
    named("class_declaration", Kind::Class, Type),
    named("interface_declaration", Kind::Interface, Type),
    named("trait_declaration", Kind::Interface, Type),
    named("enum_declaration", Kind::Enum, Type),
    named("enum_case", Kind::Variant, Nothing),
    rule("const_element", Kind::Constant, find::first_child, Nothing),
    named("property_element", Kind::Field, Nothing),
    named("property_promotion_parameter", Kind::Field, Nothing),
    rule("function_call_expression", Kind::Constant, find::php_define, Nothing),
    body("anonymous_function"),
    body("arrow_function"),
    // Most are local.
    rule("variable_name", Kind::Variable, find::nothing, Skipped),
];

pub(crate) const PHP_NAMES: &[&str] = &["name"];

pub(crate) const BASH: &[Rule] = &[
    named("function_definition", Kind::Function, Body),
    rule("variable_assignment", Kind::Variable, find::bash_variable, Nothing),
];

pub(crate) const BASH_NAMES: &[&str] = &["command_name", "variable_name"];
