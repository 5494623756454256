package toolhold

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// field is a field of a struct that stands for an object.
type field struct {
	index    int
	name     string
	schema   map[string]any
	required bool
	fallback json.RawMessage
	isFile   bool
	// What the host does with an argument.
	subject, access string
	aliases, roles  []string
	base            string
}

var subjects = map[string][2]string{
	"reads-path":   {"path", "read"},
	"writes-path":  {"path", "write"},
	"changes-name": {"name", "write"},
	"reads-url":    {"url", "read"},
	"writes-url":   {"url", "write"},
	"command":      {"command", "write"},
}

// fieldsOf reads the tags of a struct: `json` has the name, `doc` the description, `default` the
// value of a field that is left out, and `toolhold` what the host does with it, and limits.
func fieldsOf(object reflect.Type, where string, outer []reflect.Type) []field {
	if object.Kind() != reflect.Struct {
		panic(fmt.Sprintf("%s: the arguments are %v; they have to be a struct", where, object))
	}
	if slices.Contains(outer, object) {
		panic(fmt.Sprintf("%s: %v has itself as a part, which has no JSON Schema here", where, object))
	}
	outer = append(slices.Clone(outer), object)
	var fields []field
	for index := range object.NumField() {
		of := object.Field(index)
		name, options, _ := strings.Cut(of.Tag.Get("json"), ",")
		if !of.IsExported() || name == "-" {
			continue
		}
		if of.Anonymous && name == "" {
			panic(fmt.Sprintf("%s: the embedded field %s needs a name in its tag", where, of.Name))
		}
		if name == "" {
			name = of.Name
		}
		made := field{index: index, name: name, required: true}
		at := where + "." + name
		made.isFile = of.Type == reflect.TypeFor[Attachment]() || of.Type == reflect.TypeFor[*Attachment]()
		if made.isFile {
			made.schema = map[string]any{"type": "object"}
			made.roles = append(made.roles, "attachment")
		} else {
			made.schema = schemaOf(of.Type, at, outer)
		}
		if of.Type.Kind() == reflect.Pointer || strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero") {
			made.required = false
		}
		if text, is := of.Tag.Lookup("default"); is {
			if of.Type.Kind() == reflect.String {
				text = string(encoded(text))
			}
			if err := json.Unmarshal([]byte(text), reflect.New(of.Type).Interface()); err != nil {
				panic(fmt.Sprintf("%s: the default %s isn't valid: %v", at, text, err))
			}
			made.required, made.fallback = false, json.RawMessage(text)
			made.schema["default"] = made.fallback
		}
		if text := of.Tag.Get("doc"); text != "" {
			made.schema["description"] = text
		}
		made.read(of.Tag.Get("toolhold"), of.Type, at)
		fields = append(fields, made)
	}
	return fields
}

// read reads the tag `toolhold`: words that are separated by commas.
func (f *field) read(tag string, of reflect.Type, at string) {
	for word := range strings.SplitSeq(tag, ",") {
		key, value, _ := strings.Cut(strings.TrimSpace(word), "=")
		subject, isSubject := subjects[key]
		switch {
		case key == "":
		case isSubject:
			f.subject, f.access = subject[0], subject[1]
		case key == "alias":
			f.aliases = append(f.aliases, value)
		case key == "timeout" || key == "network" || key == "text":
			f.roles = append(f.roles, key)
		case key == "glob":
			f.roles, f.base = append(f.roles, key), value
		case key == "one-of":
			f.schema["enum"] = strings.Split(value, "|")
		case key == "min" || key == "max":
			limit, err := strconv.ParseFloat(value, 64)
			if err != nil {
				panic(fmt.Sprintf("%s: the limit %q isn't a number", at, value))
			}
			f.schema[limitName(key, of)] = limit
		default:
			panic(fmt.Sprintf("%s: the tag `toolhold` has no word %q", at, key))
		}
	}
}

func limitName(key string, of reflect.Type) string {
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	long := map[string]string{"min": "minimum", "max": "maximum"}
	switch of.Kind() {
	case reflect.String:
		return key + "Length"
	case reflect.Slice:
		return key + "Items"
	default:
		return long[key]
	}
}

func schemaOf(of reflect.Type, at string, outer []reflect.Type) map[string]any {
	switch {
	case of == reflect.TypeFor[json.RawMessage]() || of.Kind() == reflect.Interface:
		return map[string]any{}
	case of == reflect.TypeFor[[]byte]():
		panic(at + ": bytes have no JSON Schema here; toolhold.Attachment takes them")
	}
	switch of.Kind() {
	case reflect.Pointer:
		return schemaOf(of.Elem(), at, outer)
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Float32, reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return map[string]any{"type": "integer"}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return map[string]any{"type": "integer", "minimum": 0}
	case reflect.Slice:
		return map[string]any{"type": "array", "items": schemaOf(of.Elem(), at, outer)}
	case reflect.Map:
		if of.Key().Kind() == reflect.String {
			return map[string]any{"type": "object", "additionalProperties": schemaOf(of.Elem(), at, outer)}
		}
	case reflect.Struct:
		return objectOf(fieldsOf(of, at, outer))
	}
	panic(fmt.Sprintf("%s: %v has no JSON Schema", at, of))
}

func objectOf(fields []field) map[string]any {
	properties, required := map[string]any{}, []string{}
	for _, each := range fields {
		properties[each.name] = each.schema
		if each.required {
			required = append(required, each.name)
		}
	}
	return map[string]any{
		"type":                 "object",
		"properties":           properties,
		"required":             required,
		"additionalProperties": false,
	}
}

func encoded(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return text
}

// decode reads the arguments of a call into a struct.
func decode(fields []field, into reflect.Value, arguments string, attachments []Content) *Failure {
	wrong := func(category Category, format string, values ...any) *Failure {
		return &Failure{Category: category, Message: fmt.Sprintf(format, values...)}
	}
	var given map[string]json.RawMessage
	if err := json.Unmarshal([]byte(arguments), &given); err != nil {
		return wrong(TypeMismatch, "the arguments are no JSON object: %v", err)
	}
	for name := range given {
		if !slices.ContainsFunc(fields, func(f field) bool { return f.name == name }) {
			return wrong(InvalidParameters, "the tool has no argument %s", name)
		}
	}
	for _, each := range fields {
		value, is := given[each.name]
		if !is {
			if each.required {
				return wrong(InvalidParameters, "%s is missing", each.name)
			}
			if value = each.fallback; value == nil {
				continue
			}
		}
		target := into.Field(each.index)
		if each.isFile {
			if failure := attach(target, each.name, value, attachments); failure != nil {
				return failure
			}
			continue
		}
		if err := json.Unmarshal(value, target.Addr().Interface()); err != nil {
			var mismatch *json.UnmarshalTypeError
			if errors.As(err, &mismatch) {
				name := strings.TrimSuffix(each.name+"."+mismatch.Field, ".")
				return wrong(TypeMismatch, "%s is %s; it has to be %v", name, mismatch.Value, mismatch.Type)
			}
			return wrong(TypeMismatch, "%s: %v", each.name, err)
		}
	}
	return nil
}

// attach fills an argument that is `{"$attachment": 0}`.
func attach(target reflect.Value, name string, value json.RawMessage, attachments []Content) *Failure {
	var reference struct {
		Index *int `json:"$attachment"`
	}
	if json.Unmarshal(value, &reference) != nil || reference.Index == nil || *reference.Index < 0 || *reference.Index >= len(attachments) {
		message := fmt.Sprintf("%s has to be {\"$attachment\": N}; the call has %d attachments", name, len(attachments))
		return &Failure{Category: InvalidParameters, Message: message}
	}
	found := Attachment{attachments[*reference.Index]}
	if target.Kind() == reflect.Pointer {
		target.Set(reflect.ValueOf(&found))
	} else {
		target.Set(reflect.ValueOf(found))
	}
	return nil
}
