// SPDX-License-Identifier: Apache-2.0
#include "kernel_name.hpp"

#include <cxxabi.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <memory>

namespace ostrakon::bench {
namespace {

/// Names around the function that a kernel is in: what runs kernels, and namespaces.
constexpr const char* runners[] = {"Kokkos",
                                   "Impl",
                                   "ParallelFor",
                                   "ParallelReduce",
                                   "ParallelScan",
                                   "ostrakon",
                                   "math",
                                   "optim",
                                   "model",
                                   "for_each_team",
                                   "for_each_row",
                                   "for_each",
                                   "for_each_item",
                                   "for_each_run",
                                   "sum_over_rows",
                                   "launch",
                                   "run_block",
                                   "for_each_held",
                                   "for_each_block_team",
                                   "for_each_cluster",
                                   "for_each_row_of_logits",
                                   "for_each_row_block",
                                   "for_each_vector_of_rows"};

bool is_runner(const std::string& name) {
  return name.front() == '_' || name.rfind("cuda_parallel_launch", 0) == 0 ||
         name.rfind("sum_over_rows", 0) == 0 ||
         std::find(std::begin(runners), std::end(runners), name) != std::end(runners);
}

/// The first name in a mangled symbol that is none of runners; "" where there is none. Names come
/// behind their lengths, in decimal.
std::string function_in(const std::string& symbol) {
  for (std::size_t at = 2; at < symbol.size();) {
    if (symbol[at] == 'S' && at + 1 < symbol.size() && symbol[at + 1] != 't') {  // S_, S1a_: seen
      const std::size_t end = symbol.find('_', at);
      at = end == std::string::npos ? symbol.size() : end + 1;
    } else if (symbol[at] == 'L') {  // a literal: Li16E
      const std::size_t end = symbol.find('E', at);
      if (at + 1 < symbol.size() && (std::islower(symbol[at + 1]) != 0) && end != std::string::npos)
        at = end + 1;
      else
        ++at;
    } else if (std::isdigit(static_cast<unsigned char>(symbol[at])) != 0) {
      char* end = nullptr;
      const std::size_t length = std::strtoul(symbol.c_str() + at, &end, 10);
      at = static_cast<std::size_t>(end - symbol.c_str());
      if (length == 0 || at + length > symbol.size()) return "";
      const std::string name = symbol.substr(at, length);
      if (!is_runner(name)) return name;
      at += length;
    } else {
      ++at;
    }
  }
  return "";
}

}  // namespace

std::string readable_kernel_name(const std::string& symbol) {
  if (symbol.rfind("_Z", 0) != 0) return symbol;
  if (symbol.find("8ostrakon") != std::string::npos)
    if (const std::string name = function_in(symbol); !name.empty()) return name;
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> demangled(
      abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status), std::free);
  if (!demangled) return symbol;
  std::string name = demangled.get();
  name = name.substr(0, name.find_first_of("<("));
  if (const std::size_t space = name.rfind(' '); space != std::string::npos)
    name = name.substr(space + 1);  // the type that a template returns
  const std::size_t scope = name.rfind("::");
  return scope == std::string::npos ? name : name.substr(scope + 2);
}

}  // namespace ostrakon::bench
