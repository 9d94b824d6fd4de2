// Records by id, gone through in the order of their ids, which are never used twice. A record is found in constant time and stays where it
// is until it is erased.
#pragma once
#include <tilewise/base/check.h>

#include <boost/unordered/unordered_flat_map.hpp>
#include <map>
#include <ranges>
#include <string>
#include <utility>

namespace tilewise::scheduler {

template <class IdT, class T> class ById {
 public:
  ById() = default;
  ById(const ById&) = delete;
  ById& operator=(const ById&) = delete;

  T& insert(IdT id) {
    const auto [at, fresh] = records_.try_emplace(id);
    TW_CHECK(fresh, "an id was issued twice");
    index_.emplace(id.value, &at->second);
    return at->second;
  }
  T* find(IdT id) {
    const auto at = index_.find(id.value);
    return at == index_.end() ? nullptr : at->second;
  }
  const T* find(IdT id) const { return const_cast<ById*>(this)->find(id); }
  T& at(IdT id) {
    T* record = find(id);
    TW_CHECK(record != nullptr, "no record of an id that is referred to: " + std::to_string(id.value));
    return *record;
  }
  const T& at(IdT id) const { return const_cast<ById*>(this)->at(id); }
  void erase(IdT id) {
    index_.erase(id.value);
    const std::size_t erased = records_.erase(id);
    TW_CHECK(erased == 1, "erasing an unknown id");
  }
  std::size_t size() const { return records_.size(); }
  auto all() { return std::views::values(records_); }
  auto all() const { return std::views::values(records_); }

  template <class Archive> void archive(Archive& a) {
    a(records_);
    index_.clear();
    for (auto& [id, record] : records_) index_.emplace(id.value, &record);
  }

 private:
  std::map<IdT, T> records_;
  boost::unordered_flat_map<typename IdT::rep, T*> index_;
};

}  // namespace tilewise::scheduler
