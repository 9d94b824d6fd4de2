#!/bin/sh
# The compiler launcher of ./dev: ccache, told what it has to overlook for sources that begin with a precompiled header (none uses
# __TIME__ and the like). A precompiled header's old form is removed before it is made anew: ccache takes that for a part of the source,
# and then gives it out again though the headers in it have changed.
header='' output='' before=''
for word; do
  case $before in
    -x) [ "$word" = c++-header ] && header=yes ;;
    -o) output=$word ;;
  esac
  before=$word
done
[ -z "$header" ] || rm -f "$output"
CCACHE_SLOPPINESS=pch_defines,time_macros exec ccache "$@"
