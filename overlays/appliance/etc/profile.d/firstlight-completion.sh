# The Tab key completes commands, flags, and names of nodes, clusters and objects. Both programs list them themselves,
# so no package is needed.
[ -n "${BASH_VERSION-}" ] || return 0

_firstlight_complete() {
	local line=${COMP_LINE:0:COMP_POINT} now=${2#=} words=() offered
	read -ra words <<<"$line"
	[ "$line" = "${line% }" ] || words+=("") # the next word, which has not begun
	COMPREPLY=()
	while IFS= read -r offered; do
		case $offered in
		:[0-9]*) ;; # how others would show them
		"$now"*) COMPREPLY+=("$offered") ;;
		esac
	done < <("${words[0]}" __completeNoDesc "${words[@]:1}" 2>/dev/null)
}
complete -o default -F _firstlight_complete firstlightd kubectl
