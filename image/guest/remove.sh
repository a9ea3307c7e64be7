#!/bin/sh
# Removes the appliance from the cluster of kubectl's current context, with all that it has brought there and all objects
# of its kinds. Servers and the clusters on them are left as they are. After an interruption, run it again.
set -eu

# applied lists what the appliance has applied of kinds (commas between), in the words of kubectl delete. What others have
# made of it goes with it. On a cluster that an appliance has installed, that one's network and name server stay.
applied() {
  objects=$(kubectl get "$1" --all-namespaces --output \
    'jsonpath={range .items[?(@.metadata.annotations.firstlight\.dev/applied)]}{.apiVersion}/{.kind} --namespace={.metadata.namespace} {.metadata.name} {.metadata.managedFields[*].manager} owned-by:{.metadata.ownerReferences[*].kind}{"\n"}{end}')
  echo "$objects" |
    awk 'NF && !/ firstlight-installer| owned-by:./ { n = split($1, p, "/"); print p[n] "." p[n - 1] "." (n > 2 ? p[1] : ""), $2, $3 }'
}

# remove deletes that, and waits until it is gone.
remove() {
  found=$(applied "$1")
  echo "$found" | xargs -r -L 1 kubectl delete --ignore-not-found --cascade=foreground
}

# release takes the finalizers from objects, given in the words of kubectl get: who would have taken them is gone.
release() {
  if [ -n "$(kubectl get "$@" --all-namespaces --output name)" ]; then
    kubectl get "$@" --all-namespaces --output json |
      kubectl patch --filename=- --type=merge --patch '{"metadata":{"finalizers":null}}'
  fi
}

# First what would apply all again, then what refuses changes, then what works on servers.
kubectl delete deployment firstlight --namespace=firstlight --ignore-not-found --cascade=foreground
remove validatingwebhookconfigurations,mutatingwebhookconfigurations
remove validatingadmissionpolicybindings,validatingadmissionpolicies
remove deployments

found=$(applied customresourcedefinitions)
own=$(echo "$found" | cut -d ' ' -f 3)
others=$(kubectl api-resources --verbs=delete,list --output=name | grep -v -x -F "$own" | paste -s -d , -)
for kind in $own; do
  release "$kind"
done
release secrets --selector=environment.metal3.io=baremetal # passwords of BMCs
remove customresourcedefinitions,namespaces
remove "$others"
kubectl delete configmaps --all-namespaces --field-selector=metadata.name=kud-installer # of the operator of clusters

kubectl label nodes --selector=firstlight.dev/appliance firstlight.dev/appliance-
kubectl delete --ignore-not-found --kustomize "$(dirname "$0")"
