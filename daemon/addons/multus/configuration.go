package multus

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/utils"
)

// errNoDefault says that the runtime has no configuration but this plugin's.
var errNoDefault = errors.New("no configuration of a default network is there; install the cluster's network plugin")

// readDefault returns the cluster's default network: the first configuration in a folder, by the name of its file, that
// is not this plugin's or another meta-plugin of its type.
func readDefault(dir string) (*libcni.NetworkConfigList, error) {
	files, err := libcni.ConfFiles(dir, []string{".conf", ".conflist", ".json"})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", dir, err)
	}

	slices.Sort(files)
	var wrong string
	for _, file := range files {
		list, err := readConfiguration(file)
		if err != nil {
			wrong += "; " + err.Error()
			continue
		}
		if !slices.ContainsFunc(list.Plugins, func(p *libcni.PluginConfig) bool { return p.Network.Type == Name }) {
			return list, nil
		}
	}
	return nil, fmt.Errorf("%s: %w%s", dir, errNoDefault, wrong)
}

func readConfiguration(file string) (list *libcni.NetworkConfigList, err error) {
	if filepath.Ext(file) == ".conflist" {
		list, err = libcni.NetworkConfFromFile(file)
	} else {
		var one *libcni.NetworkConfig
		if one, err = libcni.ConfFromFile(file); err == nil {
			list, err = libcni.ConfListFromConf(one)
		}
	}
	if err == nil && len(list.Plugins) == 0 {
		err = errors.New("it has no plugins")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return list, nil
}

// encodeList writes a list with all of its plugins in it, also those that were in a folder of their own.
func encodeList(list *libcni.NetworkConfigList) ([]byte, error) {
	plugins := make([]json.RawMessage, len(list.Plugins))
	for i, p := range list.Plugins {
		plugins[i] = p.Bytes
	}

	return json.Marshal(map[string]any{
		"cniVersion": list.CNIVersion, "name": list.Name, "plugins": plugins,
		"disableCheck": list.DisableCheck, "disableGC": list.DisableGC,
	})
}

// readDefinition makes a list of what a NetworkAttachmentDefinition says: spec.config, which is one plugin's
// configuration or a list, or, without it, the configuration on the node that has the definition's name
// (De-facto Standard v1.3, 3.1).
func readDefinition(s Selection, config, networks string) ([]byte, error) {
	text := []byte(strings.TrimSpace(config))
	if len(text) == 0 {
		list, err := libcni.LoadNetworkConf(networks, s.Name)
		if err != nil {
			return nil, fmt.Errorf("NetworkAttachmentDefinition %s has no spec.config, and the node no configuration of that "+
				"name in /etc/cni/multus/net.d: %w", s, err)
		}
		if text, err = encodeList(list); err != nil {
			return nil, err
		}
	}

	list, err := completeList(s, text)
	if err != nil {
		return nil, fmt.Errorf("NetworkAttachmentDefinition %s: spec.config: %w", s, err)
	}
	return list, nil
}

// completeList gives a configuration what it lacks of a list, and the arguments of a selection.
func completeList(s Selection, text []byte) ([]byte, error) {
	var list map[string]any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&list); err != nil {
		return nil, fmt.Errorf("it is no JSON object: %w", err)
	}

	// The name may be left out: it is the definition's.
	if name, _ := list["name"].(string); name == "" {
		list["name"] = s.Name
	}
	name, _ := list["name"].(string)
	if err := utils.ValidateNetworkName(name); err != nil {
		return nil, fmt.Errorf("name %q: %s", name, err.Msg)
	}

	if _, isList := list["plugins"]; !isList {
		list = map[string]any{"cniVersion": list["cniVersion"], "name": name, "plugins": []any{list}}
		if list["cniVersion"] == nil {
			delete(list, "cniVersion")
		}
	}
	plugins, _ := list["plugins"].([]any)
	if len(plugins) == 0 {
		return nil, errors.New("plugins: it is no list with at least one plugin")
	}

	able := map[string]bool{}
	for i, entry := range plugins {
		plugin, _ := entry.(map[string]any)
		kind, _ := plugin["type"].(string)
		switch kind {
		case "":
			return nil, fmt.Errorf("plugin %d has no type, such as macvlan or bridge", i+1)
		case Name:
			return nil, fmt.Errorf("plugin %d is of type %s, which calls other plugins; name one of these", i+1, Name)
		}

		capabilities, _ := plugin["capabilities"].(map[string]any)
		for name, value := range capabilities {
			able[name] = able[name] || value == true
		}
		addArguments(plugin, s.CNIArgs)
	}

	for _, name := range slices.Sorted(maps.Keys(s.capabilities())) {
		if !able[name] {
			return nil, fmt.Errorf("the pod asks for %[1]s, and no plugin has that capability; add \"capabilities\": "+
				"{\"%[1]s\": true} to one that can, or leave it out of the annotation", name)
		}
	}
	return json.Marshal(list)
}

// addArguments puts cni-args where plugins read arguments (CNI's conventions, args.cni).
func addArguments(plugin, arguments map[string]any) {
	if len(arguments) == 0 {
		return
	}
	args, _ := plugin["args"].(map[string]any)
	if args == nil {
		args = map[string]any{}
		plugin["args"] = args
	}
	all, _ := args["cni"].(map[string]any)
	if all == nil {
		all = map[string]any{}
		args["cni"] = all
	}
	maps.Copy(all, arguments)
}
