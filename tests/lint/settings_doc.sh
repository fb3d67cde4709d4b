# docs/settings.md is what the program prints.
#   settings_doc.sh ROOT PENSTOCK
set -u
"$2" help | grep -q '^  settings ' || {
    echo "skipped: this build has no 'penstock settings'"
    exit 77
}
seen=$(mktemp)
trap 'rm -f "$seen"' EXIT
env -i "$2" settings --markdown >"$seen" || exit 1
diff -u "$1/docs/settings.md" "$seen" || {
    echo "renew it: env -i penstock settings --markdown >docs/settings.md"
    exit 1
}
