// A double-ended queue for records of some hundred bytes: the standard library's asks for memory for every one or few of those (512
// bytes at a time), this one for 64 at a time. And that one has such a piece while it is empty; this one has nothing until it is used.
#pragma once
#include <algorithm>
#include <boost/container/deque.hpp>

namespace tilewise {

template <class T>
using BlockDeque =
    boost::container::deque<T, void, boost::container::deque_options_t<boost::container::block_size<64>>>;

template <class T, class Predicate>
std::size_t erase_if(
    boost::container::deque<T, void, boost::container::deque_options_t<boost::container::block_size<64>>>&
        records,
    Predicate&& is_it) {
  const auto kept = std::remove_if(records.begin(), records.end(), is_it);
  const auto erased = static_cast<std::size_t>(records.end() - kept);
  records.erase(kept, records.end());
  return erased;
}

}  // namespace tilewise
