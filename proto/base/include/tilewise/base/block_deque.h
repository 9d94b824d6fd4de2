// A double-ended queue for records of some hundred bytes: the standard library's asks for memory for every one or few of those (512
// bytes at a time), this one for 64 at a time.
#pragma once
#include <boost/container/deque.hpp>

namespace tilewise {

template <class T>
using BlockDeque =
    boost::container::deque<T, void, boost::container::deque_options_t<boost::container::block_size<64>>>;

}  // namespace tilewise
