// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/products/pinned_products.hpp>

#include <map>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/launch_count.hpp>
#include <ostrakon/math/products/gemm.hpp>
#include <ostrakon/math/products/product_workspace.hpp>
#include <set>
#include <stdexcept>
#include <tuple>
#include <utility>

namespace ostrakon::math {
namespace {

thread_local ProductNotes* notes = nullptr;

thread_local View<std::byte*> workspace;

/// All that the library's answer to supports() depends on, besides the algorithm.
using Key = std::tuple<ProductKind, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                       std::int64_t, std::int64_t, std::int64_t>;

struct Process {
  AlgorithmTable table;
  std::map<Key, Algorithm> found;
  std::set<std::string> unpinned;

  const Algorithm& algorithm_of(ProductLibrary& library, const DeviceProduct& product,
                                const ProductKind& kind) {
    const Key key{kind,          product.m,     product.k,     product.row_a,
                  product.row_b, product.row_c, product.count, workspace.size()};
    const auto known = found.find(key);
    if (known != found.end()) return known->second;
    const auto pinned = table.algorithms.find(kind);
    const bool has_one = pinned != table.algorithms.end();
    const bool is_pinned = has_one && library.supports(product, pinned->second);
    if (!is_pinned)
      unpinned.insert(text(text_of(kind), has_one ? text(", with ", product.m, " rows and ",
                                                         product.k, " terms: refused")
                                                  : std::string()));
    return found.emplace(key, is_pinned ? pinned->second : first_algorithm(library, product, kind))
        .first->second;
  }
};

Process& process() {
  static Process one;
  return one;
}

}  // namespace

void multiply_pinned(const Exec& exec, const DeviceProduct& product,
                     const ProductOperands& operands) {
  const ProductKind kind = kind_of(product, operands);
  if (LaunchCount::takes_one(product_name(product.turn_a, product.turn_b))) {
    if (notes != nullptr) notes->add({kind, product});
    return;
  }
  ProductLibrary* const library = product_library();
  if (library == nullptr) throw std::logic_error("this build pins no products");
  library->multiply(exec, product, process().algorithm_of(*library, product, kind), operands);
}

void pin_products(AlgorithmTable table) {
  Process& all = process();
  all.table = std::move(table);
  all.found.clear();
  all.unpinned.clear();
}

std::vector<std::string> unpinned_products() {
  return {process().unpinned.begin(), process().unpinned.end()};
}

ProductNotes::ProductNotes() {
  if (notes != nullptr) throw std::logic_error("products are noted by two at once");
  notes = this;
}
ProductNotes::~ProductNotes() { notes = nullptr; }
ProductNotes* ProductNotes::current() { return notes; }

std::int64_t product_workspace_bytes(KernelForm form) {
  if (form == kernel_form) return library_workspace_bytes();
  return form == KernelForm::device_on_chip ? cublaslt_workspace_bytes : 0;
}

ProductWorkspace::ProductWorkspace(View<std::byte*> memory)
    : outer_(std::exchange(workspace, memory)) {}
ProductWorkspace::~ProductWorkspace() { workspace = outer_; }
View<std::byte*> ProductWorkspace::current() { return workspace; }

}  // namespace ostrakon::math
