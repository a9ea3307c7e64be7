package features

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// RuleObject is a NodeFeatureRule (nfd.k8s-sigs.io/v1alpha1).
type RuleObject struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Rules []Rule `json:"rules"`
	} `json:"spec"`
}

// Rule gives a node whose features match what it names (NFD, "NodeFeatureRule custom resource").
type Rule struct {
	Name              string            `json:"name"`
	Labels            map[string]string `json:"labels"`
	Annotations       map[string]string `json:"annotations"`
	ExtendedResources map[string]string `json:"extendedResources"`
	Vars              map[string]string `json:"vars"` // for later rules, which see them as rule.matched
	MatchFeatures     []Term            `json:"matchFeatures"`
	MatchAny          []struct {
		MatchFeatures []Term `json:"matchFeatures"`
	} `json:"matchAny"`

	// What is not offered here. Taints are not upstream's default, either.
	LabelsTemplate string `json:"labelsTemplate"`
	VarsTemplate   string `json:"varsTemplate"`
	Taints         []any  `json:"taints"`
}

// Term is a condition on the elements of one feature.
type Term struct {
	Feature          string                `json:"feature"` // as kernel.config
	MatchExpressions map[string]Expression `json:"matchExpressions"`
	MatchName        *Expression           `json:"matchName"`
}

// Given is what rules give a node. Names may be without a domain.
type Given struct {
	Labels      map[string]string
	Annotations map[string]string
	Resources   map[string]string // extended ones, which the node can offer to pods, by their number
}

// ruleMatched is the feature by which rules see what those before them gave.
const ruleMatched = "rule.matched"

// Apply returns what rules give a node with some features: by the names of their objects, and in an object in its order.
// A rule that cannot be is left out, with a sentence.
func Apply(all []RuleObject, raw Raw) (given Given, wrong []string) {
	given = Given{map[string]string{}, map[string]string{}, map[string]string{}}
	raw = raw.clone()
	raw.Attributes[ruleMatched] = map[string]string{}

	all = slices.SortedFunc(slices.Values(all), func(a, b RuleObject) int { return cmp.Compare(a.Metadata.Name, b.Metadata.Name) })
	for _, object := range all {
		for _, r := range object.Spec.Rules {
			if err := r.apply(raw, &given); err != nil {
				wrong = append(wrong, fmt.Sprintf("NodeFeatureRule %s: rule %q: %v", object.Metadata.Name, r.Name, err))
			}
		}
	}
	return given, wrong
}

func (r Rule) apply(raw Raw, given *Given) error {
	switch {
	case r.LabelsTemplate != "":
		return errors.New("labelsTemplate is not offered; write labels")
	case r.VarsTemplate != "":
		return errors.New("varsTemplate is not offered; write vars")
	case len(r.Taints) > 0:
		return errors.New("taints are not offered; set them with kubectl taint")
	}
	matches, err := r.matches(raw)
	if err != nil || !matches {
		return err
	}

	labels, err := resolve(r.Labels, raw)
	if err != nil {
		return err
	}
	resources, err := resolve(r.ExtendedResources, raw)
	if err != nil {
		return err
	}
	maps.Copy(given.Labels, labels)
	maps.Copy(given.Resources, resources)
	maps.Copy(given.Annotations, r.Annotations)
	maps.Copy(raw.Attributes[ruleMatched], labels)
	maps.Copy(raw.Attributes[ruleMatched], r.Vars)
	return nil
}

// resolve puts what features say in the place of values @FEATURE.ELEMENT.
func resolve(values map[string]string, raw Raw) (map[string]string, error) {
	all := map[string]string{}
	for name, value := range values {
		if path, isReference := strings.CutPrefix(value, "@"); isReference {
			parts := strings.SplitN(path, ".", 3)
			if len(parts) < 3 {
				return nil, fmt.Errorf("%s: %s is no reference; write @DOMAIN.FEATURE.ELEMENT", name, value)
			}
			is, ok := raw.Attributes[strings.ToLower(parts[0]+"."+parts[1])][parts[2]]
			if !ok {
				return nil, fmt.Errorf("%s: this node has no %s", name, path)
			}
			value = is
		}
		all[name] = value
	}
	return all, nil
}

// matches reports whether one of MatchAny holds, if there are any, and all of MatchFeatures.
func (r Rule) matches(raw Raw) (bool, error) {
	found := len(r.MatchAny) == 0
	for _, one := range r.MatchAny {
		holds, err := matchAll(one.MatchFeatures, raw)
		if err != nil {
			return false, err
		}
		found = found || holds
	}
	if !found {
		return false, nil
	}
	return matchAll(r.MatchFeatures, raw)
}

func matchAll(terms []Term, raw Raw) (bool, error) {
	for _, t := range terms {
		if holds, err := t.matches(raw); err != nil || !holds {
			return false, err
		}
	}
	return true, nil
}

// matches reports whether the elements of a feature are as they should: names and values together, or those of one
// instance. A feature that is not there matches nothing.
func (t Term) matches(raw Raw) (bool, error) {
	feature := strings.ToLower(t.Feature)
	elements, hasElements := raw.elements(feature)
	instances, hasInstances := raw.Instances[feature]
	if !hasElements && !hasInstances {
		return false, nil
	}

	if t.MatchExpressions != nil {
		sets := instances
		if hasElements {
			sets = append([]map[string]string{elements}, sets...)
		}
		if holds, err := anySet(sets, t.MatchExpressions); err != nil || !holds {
			return false, err
		}
	}
	if t.MatchName == nil {
		return true, nil
	}

	names := slices.Collect(maps.Keys(elements))
	for _, one := range instances {
		names = slices.AppendSeq(names, maps.Keys(one))
	}
	for _, name := range names {
		if holds, err := t.MatchName.holds(name, true); err != nil || holds {
			return holds, err
		}
	}
	return false, nil
}

// anySet reports whether all expressions hold of one set of elements.
func anySet(sets []map[string]string, expressions map[string]Expression) (bool, error) {
	for _, set := range sets {
		all := true
		for _, name := range slices.Sorted(maps.Keys(expressions)) {
			value, ok := set[name]
			holds, err := expressions[name].holds(value, ok)
			if err != nil {
				return false, fmt.Errorf("%s: %w", name, err)
			}
			all = all && holds
		}
		if all {
			return true, nil
		}
	}
	return false, nil
}
