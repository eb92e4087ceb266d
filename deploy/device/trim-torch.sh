#!/bin/sh
# Take out of an installed torch what training needs not: tests, headers, the compiler of graphs, and
# the symbols of its libraries (needs strip, from binutils). Only for an environment that sotto has
# for itself, and again after each new torch.
#
#   sh trim-torch.sh /opt/sotto/bin/python
set -eu
python=${1:?"usage: trim-torch.sh PYTHON, the interpreter of the environment to trim"}
torch=$("$python" -P -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])')

before=$(du -sm "$torch" | cut -f1)
for part in \
    _inductor \
    include \
    lib/libaoti_custom_ops.so lib/libbackend_with_compiler.so \
    lib/libjitbackend_test.so lib/libtorchbind_test.so \
    share \
    test
do
    rm -rf "${torch:?}/$part"
done
# Of the programs, torch looks for one when it is imported.
find "$torch/bin" -mindepth 1 ! -name torch_shm_manager -delete
for library in "$torch"/lib/libtorch_cpu.so "$torch"/lib/libtorch_python.so; do
    # A copy first: an installer may have linked the file into other environments.
    cp -p "$library" "$library.trimmed"
    strip --strip-unneeded "$library.trimmed"
    mv "$library.trimmed" "$library"
done
echo "torch: $before MB before, $(du -sm "$torch" | cut -f1) MB now"
# Proves that the training process still loads.
"$python" -P -c 'import edge_client.child.work'
