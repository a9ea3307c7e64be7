# kubectl works in root's shell; nobody else can read the file.
[ "$(id -u)" = 0 ] && export KUBECONFIG=/etc/kubernetes/admin.conf
