package policy

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The DaemonSet that runs the agent.
const (
	Namespace = "kube-system"
	Name      = "network-policy"
)

// How long an agent that ends may ask whether the add-on is being removed: less than its pod has to end.
const (
	attempts = 5
	askEvery = time.Second
	askFor   = 3 * time.Second
)

// end leaves the table for the agent that comes next, or removes it with the add-on.
func (a *Agent) end() error {
	ctx, cancel := context.WithTimeout(context.Background(), attempts*(askEvery+askFor))
	defer cancel()

	refused := 0
	for range attempts {
		switch err := a.askDaemonSet(ctx); readAnswer(err) {
		case answerStays:
			a.Log.Info("table stays for the next agent")
			return nil
		case answerGoes:
			return a.remove()
		case answerRefused:
			refused++
		case answerUnknown:
			a.Log.Warn("cannot ask whether the add-on is being removed", "error", err)
		}
		time.Sleep(askEvery)
	}
	if refused == attempts {
		return a.remove()
	}

	a.Log.Warn("table stays; if the add-on was removed: nft delete table inet " + TableName)
	return nil
}

func (a *Agent) remove() error {
	a.Log.Info("add-on is being removed: table goes, and every pod is open")
	return a.Table.Remove(context.Background())
}

// errDeleted is what askDaemonSet returns of a DaemonSet that waits for its pods to end.
var errDeleted = apierrors.NewGone("it is being deleted")

func (a *Agent) askDaemonSet(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	d, err := a.Client.AppsV1().DaemonSets(Namespace).Get(ctx, Name, metav1.GetOptions{})
	if err == nil && d.DeletionTimestamp != nil {
		return errDeleted
	}
	return err
}

// answer is whether the add-on remains.
type answer int

const (
	answerUnknown answer = iota
	answerStays          // an update, a node that restarts, a pod that was deleted
	answerGoes           // the DaemonSet is gone, or waits for its pods
	answerRefused        // the agent's account or its rights are gone: with the add-on, if it stays so
)

// readAnswer reads what the API server said about the DaemonSet.
func readAnswer(err error) answer {
	switch {
	case err == nil:
		return answerStays
	case apierrors.IsNotFound(err), apierrors.IsGone(err):
		return answerGoes
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return answerRefused
	}
	return answerUnknown
}
