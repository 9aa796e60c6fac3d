// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/trainer/product_algorithms.hpp>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/input.hpp>
#include <ostrakon/comm/agreement.hpp>
#include <ostrakon/math/products/pinned_products.hpp>
#include <ostrakon/math/products/product_workspace.hpp>
#include <ostrakon/trainer/warm_up.hpp>
#include <set>
#include <sstream>
#include <utility>

namespace ostrakon::train {
namespace {

using math::AlgorithmTable;
using math::NotedProduct;

constexpr std::size_t largest_file = std::size_t{16} << 20;

AlgorithmTable read_table(const std::string& path) {
  try {
    return AlgorithmTable::read(read_text(path, largest_file));
  } catch (const Error& error) {
    throw Error(text(path, ": ", error.what()));
  }
}

/// The kinds of all ranks; all of them on rank 0.
std::vector<NotedProduct> gather(std::vector<NotedProduct> mine, comm::Communicator& world) {
  if (world.size() == 1) return mine;
  std::vector<NotedProduct> all;
  world.gather_texts_on_root(math::write(mine), [&](int, const std::string& text) {
    for (const NotedProduct& one : math::read_products(text)) math::note(all, one);
  });
  return all;
}

/// The table of a file, and a line that says so; without algorithms where there is no such file.
struct Source {
  AlgorithmTable table;
  std::string line;
};

Source source_of(const ProductFiles& files, const math::ProductLibrary& library) {
  const std::string& path = files.required.empty() ? files.earlier : files.required;
  const bool is_there = !path.empty() && (!files.required.empty() || std::filesystem::exists(path));
  Source none{{library.version(), library.device(), {}}, ""};
  if (!is_there) return none;
  Source found{read_table(path), text(" of ", path)};
  const std::string why_not = found.table.unlike(library);
  if (why_not.empty()) return found;
  if (!files.required.empty())
    throw Error(text("--products ", path, ": ", why_not, "; expected a file of the same, or none"));
  none.line =
      text(" (", path, " is not taken, so bits may differ from those before: ", why_not, ")");
  return none;
}

/// Adds the kinds that the table lacks. Returns lines on those that are not as expected.
std::string choose(const std::vector<NotedProduct>& products, math::ProductLibrary& library,
                   View<char*> memory, AlgorithmTable& table) {
  std::string lines;
  for (const NotedProduct& one : products) {
    if (table.algorithms.count(one.kind) > 0) continue;
    const math::Choice choice = math::choose_algorithm(Exec(), library, one, memory);
    if (!choice.is_by_row)
      lines += text("      bits may depend on the number of rows: ", math::text_of(one.kind), "\n");
    table.algorithms[one.kind] = choice.algorithm;
  }
  return lines;
}

}  // namespace

void require_product_file(const std::string& file) {
  require(
      file.empty() || math::pins_products, "--products ", file,
      ": products of this build have no algorithms to choose from; expected a build with cuBLASLt "
      "or hipBLASLt");
}

ProductAlgorithms pin_products(const StepHandlers::Parts& parts, runtime::Arenas arenas,
                               const ProductFiles& files) {
  math::ProductLibrary* const library = math::product_library();
  if (library == nullptr) return {};
  comm::Communicator& world = parts.world;
  const std::string unlike = comm::disagreement(
      world, {{"library of products", library->version()}, {"device", library->device()}});
  if (!unlike.empty()) {
    world.run_collectively([&] {
      require(files.required.empty(), "--products ", files.required, ": ", unlike,
              "; expected one library and one kind of device");
    });
    return {"", text("  algorithms of products not the same on all ranks: ", unlike, "\n")};
  }
  const std::vector<NotedProduct> products = gather(products_of_programs(parts, arenas), world);
  ProductAlgorithms result;
  world.run_on_root([&] {
    Source source = source_of(files, *library);
    const std::size_t given = source.table.algorithms.size();
    const std::int64_t bytes = parts.programs.arena_bytes(plan::Space::device);
    const View<std::byte*> memory(arenas.device, bytes);
    const std::int64_t taken = std::min(bytes, math::product_workspace_bytes(math::kernel_form));
    const math::ProductWorkspace room(memory.range(0, taken));
    const View<std::byte*> rest = memory.range(taken, bytes);
    const std::string lines = choose(
        products, *library, {reinterpret_cast<char*>(rest.data()), rest.size()}, source.table);
    const std::size_t timed = source.table.algorithms.size() - given;
    result.lines =
        text("  algorithms of products ", given > 0 ? text(given, source.line, ", ") : "", timed,
             " timed by ", library->version(), given > 0 ? "" : source.line, ", hash ",
             source.table.digest(), "\n", lines);
    result.json = source.table.json();
  });
  result.lines = world.broadcast(result.lines, 0);
  result.json = world.broadcast(result.json, 0);
  math::pin_products(AlgorithmTable::read(result.json));
  return result;
}

std::string unpinned_lines(comm::Communicator& world) {
  std::string mine;
  for (const std::string& kind : math::unpinned_products())
    mine += text("      not pinned: ", kind, "\n");
  std::set<std::string> distinct;
  for (const std::string& of_rank : world.gather_texts(mine)) {
    std::istringstream lines(of_rank);
    for (std::string line; std::getline(lines, line);) distinct.insert(line + "\n");
  }
  std::string all;
  for (const std::string& line : distinct) all += line;
  return all;
}

}  // namespace ostrakon::train
