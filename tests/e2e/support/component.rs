//! Components as text, which no compiler would make.

use std::fmt::Write as _;

/// A tool as a component offers it.
#[derive(Clone)]
pub(crate) struct Offer {
    pub(crate) name: String,
    pub(crate) title: Option<String>,
    pub(crate) description: String,
    pub(crate) input_schema: String,
    pub(crate) output_schema: Option<String>,
    pub(crate) aliases: Vec<String>,
    pub(crate) promises: Vec<String>,
    pub(crate) subject_pointer: Option<String>,
    /// The names of arguments that have a description, and the roles of each.
    pub(crate) arguments: Vec<(String, Vec<String>)>,
    pub(crate) fence: Option<String>,
    pub(crate) meta: Option<String>,
}

impl Offer {
    /// A harmless tool.
    pub(crate) fn named(name: &str) -> Self {
        Self {
            name: name.into(),
            title: None,
            description: "Does nothing.".into(),
            input_schema: r#"{"type":"object"}"#.into(),
            output_schema: None,
            aliases: Vec::new(),
            promises: ["additive", "closed-world"].map(str::to_owned).to_vec(),
            subject_pointer: None,
            arguments: Vec::new(),
            fence: None,
            meta: None,
        }
    }
}

/// A component that speaks `toolhold:tool/tools` by hand.
pub(crate) struct Component {
    /// What it offers.
    pub(crate) offers: Vec<Offer>,
    /// Instructions that run before memory is allocated for the host's data.
    pub(crate) on_list: &'static str,
    /// Instructions that run instead of a tool. They leave nothing on the stack.
    pub(crate) on_call: &'static str,
    /// The answer of its tools if `on_call` ends.
    pub(crate) answer: &'static str,
    /// The imports of the core module, its memory `memory` among them; empty: it has its own
    /// memory.
    pub(crate) imports: &'static str,
    /// The source of these imports.
    pub(crate) with: &'static str,
    /// Instructions that run before memory is allocated for the host's data.
    pub(crate) on_realloc: &'static str,
    /// Instructions that run after each answer, when the host has read it.
    pub(crate) on_return: &'static str,
    /// More fields of the core module.
    pub(crate) in_module: &'static str,
    /// More fields of the component, before everything else.
    pub(crate) in_component: &'static str,
    /// The name of its export.
    pub(crate) export: &'static str,
    /// The content of each manifest section.
    pub(crate) manifests: Vec<Vec<u8>>,
}

/// A manifest with only the required fields.
pub(crate) fn manifest(name: &str) -> Vec<u8> {
    format!(r#"{{"manifest":1,"name":"{name}","version":"1.0.0","description":"Made by hand"}}"#)
        .into_bytes()
}

impl Component {
    /// A harmless component: the plugin `handmade` with these tools.
    pub(crate) fn offering(offers: Vec<Offer>) -> Self {
        Self {
            offers,
            on_list: "",
            on_call: "unreachable",
            answer: "",
            imports: "",
            with: "",
            on_realloc: "",
            on_return: "",
            in_module: "",
            in_component: "",
            export: "toolhold:tool/tools@0.1.0",
            manifests: vec![manifest("handmade")],
        }
    }

    /// The bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = wat::parse_str(self.text()).expect("the text is a component");
        for manifest in &self.manifests {
            bytes.extend(section("toolhold:manifest", manifest));
        }
        bytes
    }

    fn text(&self) -> String {
        let mut image = Image::from_offers(&self.offers);
        let answer = image.answer(self.answer);
        let mut data = String::with_capacity(image.bytes.len() * 3);
        for byte in &image.bytes {
            let _ = write!(data, "\\{byte:02x}");
        }
        let heap = BASE as usize + image.bytes.len().next_multiple_of(16);
        let pages = heap / 65536 + 4;
        let Self {
            on_list,
            on_call,
            imports,
            with,
            on_realloc,
            on_return,
            in_module,
            in_component,
            export,
            ..
        } = self;
        let memory = if imports.is_empty() {
            format!("(memory $memory {pages})")
        } else {
            (*imports).to_owned()
        };
        format!(
            r#"(component
  {in_component}
  (core module $m
    {memory}
    (export "memory" (memory $memory))
    (data (i32.const {BASE}) "{data}")
    (global $next (mut i32) (i32.const {heap}))
    {in_module}
    (func (export "list") (result i32) {on_list} i32.const {BASE})
    (func (export "call") (param i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32) {on_call} i32.const {answer})
    (func (export "realloc") (param i32 i32 i32 i32) (result i32)
      (local $at i32)
      {on_realloc}
      (local.set $at (i32.and (i32.add (global.get $next) (i32.const 15)) (i32.const -16)))
      (global.set $next (i32.add (local.get $at) (local.get 3)))
      (local.get $at))
    (func (export "returned") (param i32) {on_return}))
  (core instance $i (instantiate $m {with}))
  {TYPES}
  (func $list (result (result (list $definition) (error $failure)))
    (canon lift (core func $i "list") (memory (core memory $i "memory")) (realloc (core func $i "realloc"))
      (post-return (core func $i "returned"))))
  (func $call (param "call" $invocation) (result (result $output (error $failure)))
    (canon lift (core func $i "call") (memory (core memory $i "memory")) (realloc (core func $i "realloc"))
      (post-return (core func $i "returned"))))
  (instance $tools (export "list-tools" (func $list)) (export "call-tool" (func $call)))
  (export "{export}" (instance $tools)))"#
        )
    }
}

/// A custom section.
pub(crate) fn section(name: &str, data: &[u8]) -> Vec<u8> {
    let mut content = leb(name.len());
    content.extend(name.as_bytes());
    content.extend(data);
    let mut section = vec![0];
    section.extend(leb(content.len()));
    section.extend(content);
    section
}

fn leb(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = (number & 0x7f) as u8;
        number >>= 7;
        bytes.push(if number == 0 { low } else { low | 0x80 });
        if number == 0 {
            return bytes;
        }
    }
}

/// Named types have to be exported before an export uses them.
const TYPES: &str = r#"
  (type $c0 (enum "tool-not-found" "invalid-parameters" "type-mismatch" "policy-blocked" "confirmation-required"
    "permanent-failure" "cancelled" "rate-limited" "server-error" "network-error" "timeout"))
  (export $category "category" (type $c0))
  (type $b0 (variant (case "text" string) (case "bytes" (list u8)) (case "link" string)
    (case "other" (tuple string string))))
  (export $body "body" (type $b0))
  (type $n0 (record (field "body" $body) (field "media-type" (option string)) (field "meta" (option string))))
  (export $content "content" (type $n0))
  (type $o0 (record (field "content" (list $content)) (field "structured" (option string))
    (field "after-emitted" bool) (field "meta" (option string))))
  (export $output "output" (type $o0))
  (type $f0 (record (field "category" $category) (field "code" (option string)) (field "message" string)
    (field "suggestion" (option string)) (field "retry-after-ms" (option u64)) (field "content" (list $content))
    (field "structured" (option string)) (field "meta" (option string))))
  (export $failure "failure" (type $f0))
  (type $a0 (record (field "name" string) (field "aliases" (list string)) (field "roles" (list string))
    (field "base" (option string)) (field "reads-with" (list string)) (field "meta" (option string))))
  (export $argument "argument" (type $a0))
  (type $p0 (record (field "file" string) (field "content" (option string)) (field "old" (option string))
    (field "new" (option string)) (field "all" (option string))))
  (export $preview "preview" (type $p0))
  (type $s0 (record (field "pointer" string) (field "kind" string) (field "access" string)))
  (export $subject "subject" (type $s0))
  (type $d0 (record (field "name" string) (field "aliases" (list string)) (field "title" (option string))
    (field "description" string) (field "input-schema" string) (field "output-schema" (option string))
    (field "promises" (list string)) (field "subjects" (list $subject)) (field "arguments" (list $argument))
    (field "preview" (option $preview)) (field "answers-in" (option string)) (field "fence" (option string))
    (field "meta" (option string))))
  (export $definition "definition" (type $d0))
  (type $i0 (record (field "tool" string) (field "arguments" string) (field "attachments" (list $content))
    (field "meta" (option string))))
  (export $invocation "invocation" (type $i0))"#;

/// Where the image lies in the module's memory.
const BASE: u32 = 1024;

/// Bytes of a definition, of a subject, of an argument and of a string in memory.
const DEFINITION: usize = 176;
const SUBJECT: usize = 24;
const ARGUMENT: usize = 56;
const STRING: usize = 8;

/// Bytes of the answer of `call-tool` that counts, and of a part of it.
const OUTPUT: usize = 44;
const CONTENT: usize = 44;

/// The answer of `list-tools` in memory: the canonical ABI, by hand.
struct Image {
    bytes: Vec<u8>,
    /// Texts that are there already.
    known: std::collections::HashMap<String, u32>,
}

impl Image {
    fn from_offers(offers: &[Offer]) -> Self {
        let mut image =
            Self { bytes: vec![0; 16 + offers.len() * DEFINITION], known: Default::default() };
        // The result: no error, and the list.
        image.put(8, BASE + 16);
        image.put(12, offers.len() as u32);
        for (index, offer) in offers.iter().enumerate() {
            let at = 16 + index * DEFINITION;
            image.text(at, &offer.name);
            image.texts(at + 8, &offer.aliases);
            image.option(at + 16, offer.title.as_deref());
            image.text(at + 28, &offer.description);
            image.text(at + 36, &offer.input_schema);
            image.option(at + 44, offer.output_schema.as_deref());
            image.texts(at + 56, &offer.promises);
            if let Some(pointer) = &offer.subject_pointer {
                let subject = image.room(SUBJECT);
                image.text(subject, pointer);
                image.text(subject + 8, "path");
                image.text(subject + 16, "read");
                image.put(at + 64, BASE + subject as u32);
                image.put(at + 68, 1);
            }
            let arguments = image.room(offer.arguments.len() * ARGUMENT);
            image.put(at + 72, BASE + arguments as u32);
            image.put(at + 76, offer.arguments.len() as u32);
            for (index, (name, roles)) in offer.arguments.iter().enumerate() {
                let argument = arguments + index * ARGUMENT;
                image.text(argument, name);
                image.texts(argument + 16, roles);
            }
            image.option(at + 152, offer.fence.as_deref());
            image.option(at + 164, offer.meta.as_deref());
        }
        image
    }

    /// The answer of `call-tool`: no error and one text part. Returns its address.
    fn answer(&mut self, text: &str) -> u32 {
        let (answer, part) = (self.room(OUTPUT), self.room(CONTENT));
        self.put(answer + 8, BASE + part as u32);
        self.put(answer + 12, 1);
        self.text(part + 4, text);
        BASE + answer as u32
    }

    fn room(&mut self, size: usize) -> usize {
        let at = self.bytes.len().next_multiple_of(8);
        self.bytes.resize(at + size, 0);
        at
    }

    fn put(&mut self, at: usize, number: u32) {
        self.bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
    }

    fn text(&mut self, at: usize, text: &str) {
        let pointer = match self.known.get(text) {
            Some(known) => *known,
            None => {
                let start = self.room(text.len());
                self.bytes[start..start + text.len()].copy_from_slice(text.as_bytes());
                self.known.insert(text.to_owned(), BASE + start as u32);
                BASE + start as u32
            }
        };
        self.put(at, pointer);
        self.put(at + 4, text.len() as u32);
    }

    /// A list of texts.
    fn texts(&mut self, at: usize, texts: &[String]) {
        let list = self.room(texts.len() * STRING);
        self.put(at, BASE + list as u32);
        self.put(at + 4, texts.len() as u32);
        for (index, text) in texts.iter().enumerate() {
            self.text(list + index * STRING, text);
        }
    }

    fn option(&mut self, at: usize, text: Option<&str>) {
        if let Some(text) = text {
            self.bytes[at] = 1;
            self.text(at + 4, text);
        }
    }
}
