// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace ostrakon {

/// A vector that stores up to `few` elements inline, and allocates only for more. It is meant for
/// many small lists, where an allocation takes longer than filling the list.
template <class T, std::size_t few>
class ShortVector {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  using value_type = T;
  using iterator = T*;
  using const_iterator = const T*;

  ShortVector() = default;
  ShortVector(std::initializer_list<T> elements) { assign(elements.begin(), elements.size()); }
  ShortVector(const std::vector<T>& elements) { assign(elements.data(), elements.size()); }
  ShortVector(const ShortVector& other) { assign(other.begin(), other.size()); }
  ShortVector(ShortVector&& other) noexcept { swap(other); }
  ShortVector& operator=(const ShortVector& other) {
    if (this != &other) assign(other.begin(), other.size());
    return *this;
  }
  ShortVector& operator=(ShortVector&& other) noexcept {
    swap(other);
    return *this;
  }
  ~ShortVector() = default;

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* begin() { return many_ ? many_.get() : few_.data(); }
  T* end() { return begin() + size_; }
  const T* begin() const { return many_ ? many_.get() : few_.data(); }
  const T* end() const { return begin() + size_; }
  T& operator[](std::size_t i) { return begin()[i]; }
  const T& operator[](std::size_t i) const { return begin()[i]; }
  T& front() { return *begin(); }
  const T& front() const { return *begin(); }
  T& back() { return end()[-1]; }
  const T& back() const { return end()[-1]; }

  void clear() { size_ = 0; }
  void push_back(T element) {
    if (size_ == capacity_) grow(2 * std::size_t{capacity_} + 2);
    begin()[size_++] = element;
  }
  /// Erases one element or [first, last); returns the position of the element that followed.
  T* erase(const T* element) { return erase(element, element + 1); }
  T* erase(const T* first, const T* last) {
    T* const from = begin() + (first - begin());
    std::copy(last, static_cast<const T*>(end()), from);
    size_ -= static_cast<std::uint32_t>(last - first);
    return from;
  }

  friend bool operator==(const ShortVector& a, const ShortVector& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }
  friend bool operator!=(const ShortVector& a, const ShortVector& b) { return !(a == b); }

 private:
  void assign(const T* elements, std::size_t count) {
    size_ = 0;
    if (count > capacity_) grow(count);
    std::copy_n(elements, count, begin());
    size_ = static_cast<std::uint32_t>(count);
  }
  void grow(std::size_t capacity) {
    std::unique_ptr<T[]> grown(new T[capacity]);
    std::copy_n(begin(), size_, grown.get());
    many_ = std::move(grown);
    capacity_ = static_cast<std::uint32_t>(capacity);
  }
  void swap(ShortVector& other) noexcept {
    std::swap(few_, other.few_);
    std::swap(many_, other.many_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
  }

  std::unique_ptr<T[]> many_;  // replaces few_ when there are more than `few` elements
  std::array<T, few> few_{};
  std::uint32_t size_ = 0;
  std::uint32_t capacity_ = few;
};

}  // namespace ostrakon
