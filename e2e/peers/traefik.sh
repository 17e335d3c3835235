#!/usr/bin/env bash
# traefik.sh VERSION BINARY builds Traefik from its Go module.
set -euo pipefail
version=$1 binary=$2
copy=$(mktemp -d)
trap 'chmod -R u+w "$copy" && rm -rf "$copy"' EXIT
module=$(cd "$copy" && go mod download -json "github.com/traefik/traefik/v3@$version" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
cp -R "$module/." "$copy/"
chmod -R u+w "$copy"
mkdir -p "$copy/webui/static"
echo '<!doctype html><title>not built</title>' >"$copy/webui/static/index.html"
cd "$copy"
go build -p 2 -buildvcs=false -trimpath=false -ldflags '-s -w' -o "$binary" ./cmd/traefik
