package v1

import kjson "sigs.k8s.io/json"

// UnmarshalJSON also records the fields that the subset does not have: nothing that somebody asks for is ignored in
// silence.
func (s *InstanceSpec) UnmarshalJSON(text []byte) error {
	type plain InstanceSpec
	var out plain
	unknown, err := unmarshal(text, &out)
	if err != nil {
		return err
	}
	*s = InstanceSpec(out)
	s.Unknown = unknown
	return nil
}

// UnmarshalJSON is as that of InstanceSpec, whose fields the template's spec records itself.
func (s *MachineSpec) UnmarshalJSON(text []byte) error {
	type plain MachineSpec
	var out plain
	unknown, err := unmarshal(text, &out)
	if err != nil {
		return err
	}
	*s = MachineSpec(out)
	s.Unknown = unknown
	return nil
}

// UnmarshalJSON takes labels and annotations and passes over the rest, which upstream's templates have and nobody uses.
func (m *TemplateMetadata) UnmarshalJSON(text []byte) error {
	type plain TemplateMetadata
	return kjson.UnmarshalCaseSensitivePreserveInts(text, (*plain)(m))
}

// unmarshal returns what is said of fields that value has no place for, or has twice.
func unmarshal(text []byte, value any) (unknown []string, err error) {
	strict, err := kjson.UnmarshalStrict(text, value, kjson.DisallowUnknownFields, kjson.DisallowDuplicateFields)
	for _, e := range strict {
		unknown = append(unknown, e.Error())
	}
	return unknown, err
}
