package sriovnodes

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"

	"firstlight.dev/firstlight/daemon/addons/sriov"
)

// resourceKey is the annotation of a definition that names its resource (package multus).
const resourceKey = "k8s.v1.cni.cncf.io/resourceName"

// networkLabel is on definitions that are written here: the name of the SriovNetwork.
const networkLabel = group + "/network"

// RenderDefinition makes the NetworkAttachmentDefinition of a network.
func RenderDefinition(n Network) (*unstructured.Unstructured, error) {
	s := n.Spec
	if s.ResourceName == "" || len(validation.IsQualifiedName(Prefix+"/"+s.ResourceName)) > 0 {
		return nil, fmt.Errorf("resourceName %q is no name of a resource; name that of a SriovNetworkNodePolicy", s.ResourceName)
	}
	config := map[string]any{"cniVersion": "1.0.0", "name": n.Name, "type": sriov.Name, "vlan": s.VLAN}
	if s.VLAN != 0 {
		config["vlanQoS"] = s.VLANQoS
		if s.VLANProto != "" {
			config["vlanProto"] = strings.ToLower(s.VLANProto)
		}
	} else if s.VLANQoS != 0 {
		return nil, errors.New("vlanQoS needs a vlan")
	}
	for key, value := range map[string]string{"spoofchk": s.SpoofChk, "trust": s.Trust, "link_state": s.LinkState} {
		if value != "" {
			config[key] = value
		}
	}
	if s.MinTxRate != nil {
		config["min_tx_rate"] = *s.MinTxRate
	}
	if s.MaxTxRate != nil {
		config["max_tx_rate"] = *s.MaxTxRate
	}
	for key, text := range map[string]string{"ipam": s.IPAM, "capabilities": s.Capabilities} {
		if strings.TrimSpace(text) == "" {
			continue
		}
		var value map[string]any
		if err := json.Unmarshal([]byte(text), &value); err != nil {
			return nil, fmt.Errorf("%s is no JSON object: %w", key, err)
		}
		config[key] = value
	}

	text, err := json.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("encode the configuration: %w", err)
	}
	namespace := s.NetworkNamespace
	if namespace == "" {
		namespace = n.Namespace
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "k8s.cni.cncf.io/v1",
		"kind":       "NetworkAttachmentDefinition",
		"metadata": map[string]any{
			"name": n.Name, "namespace": namespace,
			"annotations": map[string]any{resourceKey: Prefix + "/" + s.ResourceName},
			"labels":      map[string]any{networkLabel: n.Name},
		},
		"spec": map[string]any{"config": string(text)},
	}}, nil
}
