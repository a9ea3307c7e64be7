package main

import "testing"

func TestKubeconfigOf(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--authentication-kubeconfig=/a", "--kubeconfig=/b", "--leader-elect=false"}, "/b"},
		{[]string{"--bind-address", "127.0.0.1", "--kubeconfig", "/b"}, "/b"},
		{[]string{"--version"}, ""},
		{[]string{"--help"}, ""},
		{nil, ""},
	} {
		if got := kubeconfigOf(c.args); got != c.want {
			t.Errorf("%q: %q, want %q", c.args, got, c.want)
		}
	}
}
