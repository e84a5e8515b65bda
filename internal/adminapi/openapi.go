package adminapi

import (
	"reflect"
	"strings"
	"time"

	"fairshare/internal/cli"
)

// A schema is a JSON Schema, or another object of OpenAPI.
type schema = map[string]any

// Description returns the API as OpenAPI 3.1.
func Description() map[string]any {
	types := schema{}
	refuses := response(reflect.TypeFor[Error](), "An error and what to do", types)
	paths := schema{}
	for i := range operations {
		op := &operations[i]
		parameters := []any{}
		for _, p := range op.parameters {
			parameters = append(parameters, schema{"name": p.name, "in": "query", "description": p.about,
				"required": p.required, "schema": schema{"type": "string"}})
		}
		described := schema{"operationId": op.path, "summary": op.about, "parameters": parameters,
			"responses": schema{"200": response(reflect.TypeOf(op.answer), op.about, types), "default": refuses},
			"security":  []any{schema{"token": []any{}}}}
		if op.body != nil {
			described["requestBody"] = schema{"required": true, "content": content(reflect.TypeOf(op.body), types)}
		} else {
			described["security"] = []any{schema{"token": []any{}}, schema{}}
		}
		paths[Prefix+op.path] = schema{strings.ToLower(op.method): described}
	}
	return schema{
		"openapi": "3.1.0",
		"info": schema{"title": "fairshare", "version": cli.Version(),
			"description": "What a running server shows to its operators, and what they may do there. " +
				"Times are RFC 3339 in UTC. Texts that clients have sent may contain anything."},
		"paths": paths,
		"components": schema{"schemas": types, "securitySchemes": schema{"token": schema{"type": "http",
			"scheme": "bearer", "description": "The token of --admin-token-file"}}},
	}
}

func response(t reflect.Type, about string, types schema) schema {
	return schema{"description": about, "content": content(t, types)}
}

func content(t reflect.Type, types schema) schema {
	return schema{"application/json": schema{"schema": schemaOf(t, types)}}
}

// schemaOf returns the schema of a type. Structs with a name become entries of types.
func schemaOf(t reflect.Type, types schema) schema {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return schema{"type": "string", "format": "date-time"}
	case t == reflect.TypeFor[time.Duration]():
		return schema{"type": "integer", "description": "nanoseconds"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return schema{"anyOf": []any{schemaOf(t.Elem(), types), schema{"type": "null"}}}
	case reflect.Slice:
		return schema{"type": "array", "items": schemaOf(t.Elem(), types)}
	case reflect.String:
		return schema{"type": "string"}
	case reflect.Bool:
		return schema{"type": "boolean"}
	case reflect.Float64:
		return schema{"type": "number"}
	case reflect.Struct:
		if _, known := types[t.Name()]; !known {
			fields, required := schema{}, []any{}
			types[t.Name()] = nil // for types that contain themselves
			addFields(t, fields, &required, types)
			types[t.Name()] = schema{"type": "object", "properties": fields, "required": required,
				"additionalProperties": false}
		}
		return schema{"$ref": "#/components/schemas/" + t.Name()}
	}
	return schema{"type": "integer"}
}

// addFields adds the fields of a struct, with those of embedded ones. Every field of an answer is there; an
// action needs only what to do and the client.
func addFields(t reflect.Type, fields schema, required *[]any, types schema) {
	for i := range t.NumField() {
		f := t.Field(i)
		name := f.Tag.Get("json")
		switch {
		case f.Anonymous && name == "":
			addFields(f.Type, fields, required, types)
		case name != "":
			fields[name] = schemaOf(f.Type, types)
			if t.Name() != "Action" || name == "do" || name == "client" {
				*required = append(*required, name)
			}
		}
	}
}
