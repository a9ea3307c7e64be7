package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/assets/artifact"
)

// body is what a request or an answer carries.
type body int

const (
	noBody body = iota
	formBody
	octetsBody
	recordBody
	listBody
	anyJSON
	textBody
)

// success is an answer that is none of a failure.
type success struct {
	status  int
	body    body
	headers []string
}

// parameter is a query parameter or a header.
type parameter struct {
	name, says string
	required   bool
	schema     object
}

// object is a JSON object.
type object map[string]any

func listQuery() []parameter {
	return []parameter{
		{"limit", "Records on a page.", false, object{
			"type":    "integer",
			"minimum": 1,
			"maximum": artifact.MaxPage,
			"default": artifact.PageLength,
		}},
		{"continue", "What the page before said for continue.", false, object{"type": "string"}},
	}
}

func appendHeader() []parameter {
	return []parameter{{artifact.HeaderOffset, "Offset at which the body begins; image_offset of the record.", true, octetsSchema()}}
}

func rangeHeader() []parameter {
	return []parameter{{"Range", "One range of bytes (RFC 9110).", false, object{"type": "string"}}}
}

func octetsSchema() object { return object{"type": "integer", "format": "int64", "minimum": 0} }

// openAPIDocument is the API as OpenAPI 3.1, made of the table of routes.
func openAPIDocument() ([]byte, error) {
	paths := map[string]object{}
	for _, rt := range routeTable() {
		if paths[rt.path] == nil {
			paths[rt.path] = object{}
		}
		paths[rt.path][strings.ToLower(rt.method)] = operation(rt)
	}

	text, err := json.MarshalIndent(object{
		"openapi": "3.1.0",
		"info": object{
			"title":       "Firstlight artifacts",
			"version":     assets.Version,
			"description": "What operators bring to the appliance: OS images, container images and packages. The API of ICN's BPA, with listing, digests and failures that say what is wrong.",
		},
		"security": []object{{"bearer": []string{}}, {"certificate": []string{}}},
		"paths":    paths,
		"components": object{
			"schemas": schemas(),
			"securitySchemes": object{
				"bearer": object{
					"type":        "http",
					"scheme":      "bearer",
					"description": "A token of the bootstrap cluster: kubectl create token.",
				},
				"certificate": object{
					"type":        "mutualTLS",
					"description": "A client certificate of the appliance's authority.",
				},
			},
		},
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("make OpenAPI document: %w", err)
	}

	return append(text, '\n'), nil
}

var reBraces = regexp.MustCompile(`\{([a-z]+)\}`)

func operation(rt route) object {
	var parameters []object
	for _, m := range reBraces.FindAllStringSubmatch(rt.path, -1) {
		parameters = append(
			parameters, object{"name": m[1], "in": "path", "required": true, "schema": pathSchemas()[m[1]]},
		)
	}

	for in, list := range map[string][]parameter{"query": rt.query, "header": rt.header} {
		for _, p := range list {
			parameters = append(
				parameters,
				object{
					"name":        p.name,
					"in":          in,
					"required":    p.required,
					"description": p.says,
					"schema":      p.schema,
				},
			)
		}
	}

	responses := object{}
	for _, s := range rt.success {
		answer := object{"description": http.StatusText(s.status)}
		if c := content(s.body); c != nil {
			answer["content"] = c
		}

		if len(s.headers) > 0 {
			headers := object{}
			for _, h := range s.headers {
				headers[h] = object{"schema": headerSchema(h)}
			}
			answer["headers"] = headers
		}

		responses[strconv.Itoa(s.status)] = answer
	}

	failures := rt.failures
	switch {
	case rt.verb != open:
		failures = append([]int{401, 403, 429, 500, 503}, failures...)
	case rt.id == "ready":
		failures = []int{503}
	}

	for _, status := range failures {
		answer := object{"description": http.StatusText(status)}
		if rt.method != "HEAD" {
			answer["content"] = object{artifact.ProblemType: object{"schema": reference("Problem")}}
		}
		responses[strconv.Itoa(status)] = answer
	}

	op := object{"operationId": rt.id, "summary": rt.summary, "responses": responses}
	if parameters != nil {
		op["parameters"] = parameters
	}

	if c := content(rt.takes); c != nil {
		op["requestBody"] = object{"required": true, "content": c}
	}

	if rt.verb == open {
		op["security"] = []object{}
	}

	return op
}

func reference(name string) object { return object{"$ref": "#/components/schemas/" + name} }

// content is the media type and schema of a body; nil is no body.
func content(b body) object {
	switch b {
	case formBody:
		return object{"multipart/form-data": object{
			"schema":   reference("Form"),
			"encoding": object{"metadata": object{"contentType": "application/json"}},
		}}
	case octetsBody:
		return object{"application/octet-stream": object{"schema": object{}}}
	case recordBody:
		return object{"application/json": object{"schema": reference("Record")}}
	case listBody:
		return object{"application/json": object{"schema": reference("List")}}
	case anyJSON:
		return object{"application/json": object{"schema": object{"type": "object"}}}
	case textBody:
		return object{"text/plain": object{"schema": object{"type": "string"}}}
	}
	return nil
}
