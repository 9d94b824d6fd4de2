// Records by id. Ids are never reused but slots are, so that memory follows what is alive; iteration goes by slot, an
// order that depends on the history of events alone. References stay valid until the record is erased.
#pragma once
#include <tilewise/base/check.h>

#include <boost/unordered/unordered_flat_map.hpp>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace tilewise::scheduler {

template <class IdT, class T> class Table {
 public:
  T& insert(IdT id, T record) {
    std::uint32_t slot;
    if (free_.empty()) {
      slot = static_cast<std::uint32_t>(slots_.size());
      slots_.emplace_back();
    } else {
      slot = free_.back();
      free_.pop_back();
    }
    slots_[slot].emplace(std::move(record));
    const bool fresh = index_.emplace(id.value, slot).second;
    TW_CHECK(fresh, "an id was issued twice");
    return *slots_[slot];
  }
  T* find(IdT id) {
    const auto it = index_.find(id.value);
    return it == index_.end() ? nullptr : &*slots_[it->second];
  }
  const T* find(IdT id) const { return const_cast<Table*>(this)->find(id); }
  T& at(IdT id) {
    T* record = find(id);
    TW_CHECK(record != nullptr, "no record of an id that is referred to: " + std::to_string(id.value));
    return *record;
  }
  const T& at(IdT id) const { return const_cast<Table*>(this)->at(id); }
  void erase(IdT id) {
    const auto it = index_.find(id.value);
    TW_CHECK(it != index_.end(), "erasing an unknown id");
    slots_[it->second].reset();
    free_.push_back(it->second);
    index_.erase(it);
  }
  std::size_t size() const { return index_.size(); }

  // Slots and all, so that the order of iteration stays. `id_of` a record.
  template <class Archive, class F> void archive(Archive& a, F&& id_of) {
    a(slots_, free_);
    index_.clear();
    for (std::uint32_t slot = 0; slot < slots_.size(); ++slot)
      if (slots_[slot]) index_.emplace(id_of(*slots_[slot]).value, slot);
  }

  template <class F> void for_each(F&& visit) {
    for (auto& slot : slots_)
      if (slot) visit(*slot);
  }
  template <class F> void for_each(F&& visit) const {
    for (const auto& slot : slots_)
      if (slot) visit(*slot);
  }

 private:
  std::deque<std::optional<T>> slots_;
  std::vector<std::uint32_t> free_;
  boost::unordered_flat_map<typename IdT::rep, std::uint32_t> index_;
};

}  // namespace tilewise::scheduler
