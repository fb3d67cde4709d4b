# No setting is dead, and those that MXNet's users know are proved: every row of
# base/settings.def is read somewhere, and each row of the table in docs/settings-proof.md
# names a setting and a test that exist.
#   settings_proof.sh ROOT
. "$(dirname "$0")/lib.sh"
cd "$1" || exit 1
found=$(mktemp)
names=$(sed -n 's/^PS_\(INT\|BYTES\|REAL\|BOOL\|TEXT\|ENUM\) *(\([A-Z0-9_]*\),.*/\2/p' base/settings.def)
for name in $names; do
    grep -rqw --include='*.c' --exclude='settings*.c' "PS_SET_$name" $rooms ||
        echo "base/settings.def: $name is read by nobody"
done >"$found"

# | `SETTING` | effect | `tests/file` | `test` |
proof=docs/settings-proof.md
sed -n 's/^| `\([A-Z0-9_]*\)` |.*| `\(tests[^`]*\)` | `\([^`]*\)` |$/\1 \2 \3/p' "$proof" | while read -r name file test; do
    echo "$names" | grep -qx "$name" || echo "$proof: $name is no setting"
    if [ ! -f "$file" ]; then
        echo "$proof: $name: no file $file"
    elif ! grep -qw "$test" "$file"; then
        echo "$proof: $name: $file has no test $test"
    fi
done >>"$found"
# What users of MXNet were promised; rows of the table above, one or more each.
for name in $(sed -n 's/^promised: //p' "$proof"); do
    grep -q "^| \`$name\` |.*| \`tests[^\`]*\` | \`[^\`]*\` |\$" "$proof" ||
        echo "$proof: $name has no row with a test"
done >>"$found"
verdict "$found"
