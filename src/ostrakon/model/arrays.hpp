// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/model/array_packer.hpp>

namespace ostrakon::model {

/// Casts away const, as the arrays in a buffer are described once, by views that can be written.
/// The caller must only read through the result.
template <class A>
View<A*> to_read(View<const A*> array) {
  return {const_cast<A*>(array.data()), array.size(), array.origin()};
}

/// The arrays in a buffer, one after the other. Written once for both uses: with a buffer take()
/// hands them out; without one they do not exist, and size() tells how large it has to be.
template <class T>
class Arrays {
 public:
  explicit Arrays(View<std::byte*> buffer = {}) : buffer_(buffer), packing_(buffer_alignment<T>) {}

  template <class A>
  View<A*> take(std::int64_t count) {
    const std::int64_t offset = packing_.place(bytes_of<A>(count));
    if (!buffer_ || count == 0) return {};
    return array_in<A>(buffer_, offset, count);
  }
  View<T**> matrix(std::int64_t rows, std::int64_t columns) {
    return take<T>(rows * columns).matrix(rows, columns);
  }

  std::int64_t size() const { return packing_.size(); }

 private:
  View<std::byte*> buffer_;
  ArrayPacker packing_;
};

}  // namespace ostrakon::model
