package bench

import "slices"

// Series are measurements of several runs, by name. The zero value is empty.
type Series struct {
	values map[string][]float64
	names  []string
}

// Add adds one measurement to those of a name.
func (s *Series) Add(name string, v float64) {
	if s.values == nil {
		s.values = map[string][]float64{}
	}
	if _, known := s.values[name]; !known {
		s.names = append(s.names, name)
	}
	s.values[name] = append(s.values[name], v)
}

// Names are those of all measurements, in the order of their first.
func (s *Series) Names() []string { return s.names }

// Median is that of what was measured under a name; 0 if nothing was.
func (s *Series) Median(name string) float64 {
	if len(s.values[name]) == 0 {
		return 0
	}
	return Median(s.values[name])
}

// Median of a list that is not empty.
func Median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}
