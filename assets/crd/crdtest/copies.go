package crdtest

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/randfill"
)

// CheckCopies holds that a copy of each kind of a version has every field and shares nothing with its original. It fails
// if a field was added and go generate not run, which makes the copies.
func CheckCopies(t testing.TB, version schema.GroupVersion, add func(*runtime.Scheme) error) {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, add(scheme))
	filler := randfill.NewWithSeed(1).NilChance(0).NumElements(1, 2).Funcs(func(e *runtime.RawExtension, c randfill.Continue) {
		c.Fill(&e.Raw) // Object is an interface
	})
	library := reflect.TypeFor[metav1.ObjectMeta]().PkgPath()
	seen := 0
	for kind, of := range scheme.KnownTypes(version) {
		if of.PkgPath() == library {
			continue // options of requests, which every version has
		}

		seen++
		one := reflect.New(of)
		filler.Fill(one.Interface())
		again := one.Interface().(runtime.Object).DeepCopyObject()
		require.Equal(t, one.Interface(), again, kind)
		checkNothingShared(t, kind, one.Elem(), reflect.ValueOf(again).Elem())
	}
	assert.NotZero(t, seen, "%s has no kinds", version)
}

// checkNothingShared compares two equal values. What is not exported is the libraries' own.
func checkNothingShared(t testing.TB, path string, a, b reflect.Value) {
	t.Helper()
	if refers(a) && !assert.NotEqual(t, a.Pointer(), b.Pointer(), "%s is shared with its copy; run go generate", path) {
		return
	}

	switch a.Kind() {
	case reflect.Pointer:
		if !a.IsNil() {
			checkNothingShared(t, path, a.Elem(), b.Elem())
		}
	case reflect.Slice:
		for i := range a.Len() {
			checkNothingShared(t, path+"[]", a.Index(i), b.Index(i))
		}
	case reflect.Map:
		for _, key := range a.MapKeys() {
			checkNothingShared(t, path+"{}", a.MapIndex(key), b.MapIndex(key))
		}
	case reflect.Struct:
		for i := range a.NumField() {
			if field := a.Type().Field(i); field.IsExported() {
				checkNothingShared(t, path+"."+field.Name, a.Field(i), b.Field(i))
			}
		}
	}
}

// refers reports whether a value refers to memory: pointers to empty structs may all be equal.
func refers(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Pointer:
		return !v.IsNil() && v.Type().Elem().Size() > 0
	case reflect.Slice, reflect.Map:
		return v.Len() > 0
	}
	return false
}
