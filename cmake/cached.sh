#!/bin/sh
# The compiler launcher of ./dev: ccache, told what it has to overlook for sources that begin with a precompiled header (none uses
# __TIME__ and the like), and given what GCC needs for its sake there. Not where the header itself is compiled: its old compiled form would be
# taken for a part of it, and given out again though the headers in it have changed. For the same reason that form is removed first.
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
elif [ -n "$precompiled" ]; then
  set -- "$@" -fpch-preprocess
fi
CCACHE_SLOPPINESS=pch_defines,time_macros exec ccache "$@"
