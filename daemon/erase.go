package daemon

import (
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"firstlight.dev/firstlight/daemon/appliance/api"
	"firstlight.dev/firstlight/daemon/appliance/audit"
	"firstlight.dev/firstlight/daemon/metal/metal3"
)

// socketUser is who may open the socket of the daemon.
const socketUser = "root"

// newCommandAudit writes down what root has the daemon do to hosts that loses data.
func newCommandAudit(log *audit.Log) func(api.Change) {
	return func(c api.Change) {
		log.Add(audit.Request{
			HTTP:     c.HTTP,
			Received: c.Received,
			User:     socketUser,
			Verb:     c.Verb,
			Object: auditv1.ObjectReference{
				APIGroup: "metal3.io", Resource: "baremetalhosts", Namespace: metal3.Namespace, Name: c.Node,
			},
			Code:   c.Code,
			Reason: c.Reason,
		})
	}
}
