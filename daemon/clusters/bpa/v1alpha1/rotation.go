package v1alpha1

// AnnotationRotation is on a Provisioning: the token of the rotation of its cluster's authorities that is asked for. Each
// token is a rotation of its own, once.
const AnnotationRotation = "bpa.akraino.org/rotate-authorities"
