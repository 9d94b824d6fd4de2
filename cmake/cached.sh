#!/bin/sh
# The compiler launcher of ./dev: ccache, told what it has to overlook for sources that begin with a precompiled header (none uses
# __TIME__ and the like), and given what GCC needs for its sake there. Not where the header itself is compiled: its old compiled form would be
# taken for a part of it, and given out again though the headers in it have changed. For the same reason that form is removed first. And a
# header is looked up by the bytes of all that it includes, never by what the preprocessor leaves of them: GCC knows a file that it has seen
# (#pragma once) by its bytes, so one whose comments alone have changed since is read a second time, and all in it is defined twice
# (ccache issue 1615). A namespace of its own keeps it from what was cached otherwise.
header='' output='' before='' precompiled=''
for word; do
  case $before in
    -x) [ "$word" = c++-header ] && header=yes ;;
    -o) output=$word ;;
    -include) case $word in */cmake_pch.hxx) precompiled=yes ;; esac ;;
  esac
  before=$word
done
if [ -n "$header" ]; then
  rm -f "$output"
  export CCACHE_DEPEND=1 CCACHE_NAMESPACE=precompiled
elif [ -n "$precompiled" ]; then
  set -- "$@" -fpch-preprocess
fi
CCACHE_SLOPPINESS=pch_defines,time_macros exec ccache "$@"
