package api

import "firstlight.dev/firstlight/assets/artifact"

// pathSchemas are the parts of a path; artifact.Key says the same in Go.
func pathSchemas() map[string]object {
	label := object{"type": "string", "pattern": "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"}
	return map[string]object{
		"owner":       label,
		"clustername": label,
		"collection":  {"type": "string", "enum": artifact.Collections()},
		"imgname":     {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._+~-]{0,127}$"},
	}
}

// headerSchema is what an answer's header may be.
func headerSchema(name string) object {
	switch name {
	case artifact.HeaderOffset, artifact.HeaderLength:
		return octetsSchema()
	case artifact.HeaderComplete:
		return object{"type": "string", "enum": []string{"?0", "?1"}}
	case "ETag":
		return object{"type": "string", "pattern": `^"sha256:[0-9a-f]{64}"$`}
	}
	return object{"type": "string"}
}

// schemas are those of assets/artifact; a test compares the fields.
func schemas() object {
	text := object{"type": "string"}
	instant := object{"type": "string", "format": "date-time"}
	digest := object{"type": "string", "pattern": "^[0-9a-f]{64}$"}
	return object{
		"Record": object{
			"type":     "object",
			"required": []string{"owner", "image_name", "image_length"},
			"properties": object{
				"owner":        pathSchemas()["owner"],
				"cluster_name": pathSchemas()["clustername"],
				"type":         text,
				"image_name":   pathSchemas()["imgname"],
				"image_offset": octetsSchema(),
				"image_length": object{
					"type":        "integer",
					"format":      "int64",
					"minimum":     0,
					"maximum":     int64(artifact.MaxLength),
					"description": "At least 1; 0 is said of a damaged one alone.",
				},
				"upload_complete": object{"type": "boolean"},
				"description":     reference("Description"),
				"sha256":          digest,
				"format":          object{"type": "string", "enum": []string{"qcow2", "raw"}, "readOnly": true},
				"virtual_size":    octetsSchema(),
				"served_as":       object{"type": "array", "items": text, "readOnly": true},
				"not_served":      object{"type": "string", "readOnly": true},
				"damaged":         object{"type": "string", "readOnly": true},
				"created":         instant,
				"updated":         instant,
			},
		},
		"Description": object{
			"type": "object",
			"properties": object{
				"image_records": object{
					"type":  []string{"array", "null"},
					"items": object{"type": "object", "additionalProperties": text},
				},
			},
		},
		"List": object{
			"type":     "object",
			"required": []string{"items"},
			"properties": object{
				"items":    object{"type": "array", "items": reference("Record")},
				"continue": text,
			},
		},
		"Problem": object{
			"type":     "object",
			"required": []string{"title", "status", "detail"},
			"properties": object{
				"title":  text,
				"status": object{"type": "integer", "minimum": 400, "maximum": 599},
				"detail": text,
				"offset": octetsSchema(),
			},
		},
		"Form": object{
			"type":     "object",
			"required": []string{"metadata", "file"},
			"properties": object{
				"metadata": reference("Record"),
				"file":     object{"type": "string", "format": "binary", "description": "Any file; it is passed over."},
			},
		},
	}
}
