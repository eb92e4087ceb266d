#!/bin/sh
# Pull the base image and write its digest into every Containerfile. Run it again for its updates, and
# read the difference: a digest names one image for ever.
set -eu
cd "$(dirname "$0")/../containers"
image=$(sed -n 's/^ARG PYTHON_IMAGE=\([^@]*\).*/\1/p' server.Containerfile)
podman pull --quiet "$image" >/dev/null
digest=$(podman image inspect --format '{{.Digest}}' "$image")
case $digest in
sha256:????????????????????????????????????????????????????????????????) ;;
*) echo "the digest of $image must be sha256:<64 hex digits>, got '$digest'" >&2; exit 1 ;;
esac
for file in *.Containerfile; do
    sed "s|^ARG PYTHON_IMAGE=.*|ARG PYTHON_IMAGE=$image@$digest|" "$file" >"$file.new"
    mv "$file.new" "$file"
done
echo "$image@$digest"
