// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/chain_check.hpp>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <ostrakon/base/error.hpp>
#include <set>
#include <utility>

namespace ostrakon::model {
namespace {

/// Names are parts of paths in checkpoints.
bool is_name(const std::string& name) {
  const auto is_plain = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
  };
  return !name.empty() && name.front() != '.' && std::all_of(name.begin(), name.end(), is_plain);
}

/// `size` of `largest_chain` at most, which it is subtracted from. `what`: "saved bytes".
void count(const ChainUnitDescription& unit, std::int64_t size, std::int64_t element_bytes,
           const std::string& what, std::int64_t& left) {
  require(size <= left / element_bytes, "unit ", unit.name, " has ", what, ": ", size,
          "; expected at most ", largest_chain, " bytes in all units");
  left -= size * element_bytes;
}

void check_exchange(const ChainUnitDescription& unit, const plan::Exchange& exchange,
                    const char* what) {
  require(exchange.span.ranks >= 1 && exchange.elements >= 0 && exchange.element_bytes >= 1,
          "unit ", unit.name, ": ", what, " exchanges ", exchange.elements, " elements of ",
          exchange.element_bytes, " bytes over ", exchange.span.ranks,
          " ranks; expected at least 0, 1 and 1");
  require(exchange.elements % exchange.span.ranks == 0, "unit ", unit.name, ": ", what,
          " exchanges ", exchange.elements, " elements over ", exchange.span.ranks,
          " ranks; expected equal parts");
}

void check_phases(const ChainUnitDescription& unit, const plan::Phases& phases, const char* what) {
  plan::check_reads(phases, unit.name, what);
  for (const plan::Phase& phase : phases) {
    if (phase.then) check_exchange(unit, *phase.then, what);
    require(phase.workspace_bytes >= 0, "unit ", unit.name, ": ", what, " has a workspace of ",
            phase.workspace_bytes, " bytes");
    require(std::isfinite(phase.flops) && phase.flops >= 0.0 &&
                std::isfinite(phase.recompute_flops) && phase.recompute_flops >= 0.0,
            "unit ", unit.name, ": ", what, " takes ", phase.flops,
            " floating-point operations, and ", phase.recompute_flops, " to recompute");
  }
}

void check_parameters(const ChainUnitDescription& unit) {
  std::set<std::string> names;
  for (const Parameter& parameter : unit.parameters) {
    require(is_name(parameter.name), "unit ", unit.name, ": a parameter has the name '",
            parameter.name, "'; expected letters, digits, '_', '-' and '.'");
    require(names.insert(parameter.name).second, "unit ", unit.name,
            ": two parameters have the name ", parameter.name);
    for (const std::int64_t extent : parameter.shape)
      require(extent >= 1, "unit ", unit.name, ": parameter ", parameter.name, " has an extent of ",
              extent, "; expected at least 1");
    require(std::isfinite(parameter.deviation) && parameter.deviation >= 0.0, "unit ", unit.name,
            ": parameter ", parameter.name, " has a deviation of ", parameter.deviation);
  }
}

void check_sizes(const ChainUnitDescription& unit) {
  for (const auto& [size, what] :
       {std::pair{unit.input, "an input of "}, std::pair{unit.output, "an output of "},
        std::pair{unit.saved_bytes, "saved bytes: "}})
    require(size >= 0, "unit ", unit.name, " has ", what, size, "; expected at least 0");
  require(unit.output >= 1, "unit ", unit.name, " has no output");
}

/// After the checks above: what the sizes of a chain add up to.
struct SizesLeft {
  std::int64_t elements = largest_chain;  ///< of parameters
  std::int64_t bytes = largest_chain;     ///< of all else

  void count_unit(const ChainUnitDescription& unit) {
    for (const Parameter& parameter : unit.parameters) {
      std::int64_t product = 1;
      for (const std::int64_t extent : parameter.shape) {
        require(extent <= elements / product, "unit ", unit.name, ": parameter ", parameter.name,
                " is too large; expected at most ", largest_chain, " elements in all units");
        product *= extent;
      }
      elements -= product;
    }
    count(unit, unit.output, sizeof(double), "elements of output", bytes);
    count(unit, unit.saved_bytes, 1, "saved bytes", bytes);
    for (const plan::Phases* phases : {&unit.forward, &unit.backward})
      for (const plan::Phase& phase : *phases) {
        count(unit, phase.workspace_bytes, 1, "workspace bytes", bytes);
        if (phase.then)
          count(unit, phase.then->elements, phase.then->element_bytes, "exchanged elements", bytes);
      }
  }
};

/// `before`: names of earlier units, and whether each is tied.
void check_tie(const ChainUnitDescription& unit, const std::map<std::string, bool>& before,
               std::set<std::string>& taken) {
  if (unit.tied_to.empty()) return;
  const auto found = before.find(unit.tied_to);
  require(found != before.end(), "unit ", unit.name, " is tied to ", unit.tied_to,
          ", which is no unit before it");
  require(!found->second, "unit ", unit.name, " is tied to ", unit.tied_to,
          ", which is tied to another unit itself");
  require(taken.insert(unit.tied_to).second, "unit ", unit.name, " is tied to ", unit.tied_to,
          ", to which another unit is tied; expected one at most");
}

}  // namespace

void check_chain(const std::vector<ChainUnitDescription>& units) {
  require(units.size() >= 2, "a chain of ", units.size(),
          " units; expected at least one, and then the one that computes the losses");
  std::map<std::string, bool> names;
  std::set<std::string> tied;
  SizesLeft left;
  for (std::size_t u = 0; u < units.size(); ++u) {
    const ChainUnitDescription& unit = units[u];
    const bool is_last = u + 1 == units.size();
    require(is_name(unit.name), "unit ", u, " of a chain has the name '", unit.name,
            "'; expected letters, digits, '_', '-' and '.'");
    check_sizes(unit);
    require(unit.is_loss == is_last, "unit ", unit.name,
            is_last ? " is the last and computes no losses: expected is_loss"
                    : " computes losses, but is not the last unit");
    const std::int64_t brought = u == 0 ? 0 : units[u - 1].output;
    require(unit.input == brought, "unit ", unit.name, " reads ", unit.input, " elements, but ",
            u == 0 ? "is the first: expected 0, as it reads the batch"
                   : text("unit ", units[u - 1].name, " before it writes ", brought));
    require(u > 0 || unit.reads_batch, "unit ", unit.name,
            " is the first and reads nothing: expected reads_batch");
    check_phases(unit, unit.forward, "forward");
    check_phases(unit, unit.backward, "backward");
    check_parameters(unit);
    left.count_unit(unit);
    check_tie(unit, names, tied);
    require(names.emplace(unit.name, !unit.tied_to.empty()).second, "two units have the name ",
            unit.name);
  }
}

void require_different_parameters(const std::vector<ChainUnitDescription>& units) {
  std::map<std::string, std::string> owners;
  for (const ChainUnitDescription& unit : units)
    for (const Parameter& parameter : unit.parameters) {
      const auto [found, is_new] = owners.emplace(parameter.full_name(), unit.name);
      require(is_new, "units ", found->second, " and ", unit.name,
              " both have a parameter with the full name ", parameter.full_name());
    }
}

}  // namespace ostrakon::model
