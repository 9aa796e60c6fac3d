// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/watch/fault.hpp>

#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <ostrakon/base/error.hpp>
#include <sstream>
#include <thread>

namespace ostrakon::watch {
namespace {

constexpr const char* fault_form =
    "expected \"rank R, step S, ACTION: WHAT\", with an action of the plan such as "
    "backward(block.1), or checkpoint, and sleep SECONDS, spin, stop or exit; with a collective, "
    "such as gather(block.1), also skip or swap; or \"rank R, step S: slow_data SECONDS\" or "
    "slow_compute SECONDS; or flip TARGET [SEED] [always] with gradient, parameter, product or "
    "message";

/// Takes "NAME number" and what separates it from the rest off the front of `text`.
std::int64_t take_number(std::string& text, const std::string& name) {
  std::istringstream in(text);
  std::string word;
  std::int64_t number = -1;
  in >> word >> number;
  require(in && word == name && number >= 0, "\"", text, "\" is no ", name, ": ", fault_form);
  char comma = ',';
  require(!(in >> comma) || comma == ',', "\"", text, "\" has no comma after the ", name, ": ",
          fault_form);
  std::getline(in >> std::ws, text);
  if (!in) text.clear();
  return number;
}

std::string trimmed_place(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t\n");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\n") + 1 - first);
}

void sleep_seconds(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

/// Takes "TARGET [SEED] [always]" after flip.
void take_flip(std::istream& in, Fault& fault) {
  std::string target;
  in >> target;
  const auto known = find_named(flip_target_names, target);
  require(known.has_value(), "flip \"", target, "\": ", fault_form);
  fault.target = *known;
  for (std::string word; in >> word;) {
    if (word == "always") {
      fault.recurs = true;
      continue;
    }
    const bool is_number = word.size() < 20 && word.find_first_not_of("0123456789") == word.npos;
    require(is_number, "flip ", target, ": \"", word, "\": ", fault_form);
    fault.seed = std::stoull(word);
  }
}

/// Whether an action of a kind has such arrays.
bool has_target(plan::Kind kind, FlipTarget target) {
  switch (target) {
    case FlipTarget::gradient:
      return kind == plan::Kind::backward;
    case FlipTarget::parameter:
    case FlipTarget::product:
      return kind == plan::Kind::forward || kind == plan::Kind::backward;
    case FlipTarget::message:
      return kind == plan::Kind::gather || kind == plan::Kind::exchange;
  }
  return false;
}

}  // namespace

bool Fault::slows(plan::Kind kind_of_action) const {
  return kind == FaultKind::slow_data ? kind_of_action == plan::Kind::load
                                      : plan::is_phase(kind_of_action);
}

bool Fault::names(const std::string& described) const {
  if (described == action || action.empty()) return described == action;
  const bool is_closed = action.back() == ')';
  const std::string begin = is_closed ? action.substr(0, action.size() - 1) + ", " : action + "(";
  return described.compare(0, begin.size(), begin) == 0;
}

Fault parse_fault(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  require(colon != std::string::npos, "\"", text, "\" has no colon: ", fault_form);
  Fault fault;
  std::string place = text.substr(0, colon);
  fault.rank = static_cast<int>(take_number(place, "rank"));
  fault.step = take_number(place, "step");
  require(fault.step >= 1, "step ", fault.step, ": expected 1 or more");
  fault.action = trimmed_place(place);

  std::istringstream in(text.substr(colon + 1));
  std::string what, rest;
  in >> what;
  const auto kind = find_named(fault_names, what);
  require(kind.has_value(), "\"", what, "\" is no fault: ", fault_form);
  fault.kind = *kind;
  if (fault.kind == FaultKind::sleep || fault.lasts())
    require(static_cast<bool>(in >> fault.seconds) && fault.seconds > 0.0 &&
                std::isfinite(fault.seconds),
            what, " has no time: expected seconds after it, more than 0");
  if (fault.kind == FaultKind::flip) take_flip(in, fault);
  require(!(in >> rest), "\"", rest, "\" follows ", what, ": ", fault_form);
  if (fault.lasts()) {
    require(fault.action.empty(), what, " has the action ", fault.action,
            ": expected none, as it is of all that read data, or that compute");
    return fault;
  }
  const std::string name = fault.action.substr(0, fault.action.find('('));
  const std::optional<plan::Kind> known = plan::find_kind(name);
  require(
      fault.is_at_checkpoint() || (known && plan::traits(*known).activity != plan::Activity::none),
      "\"", fault.action, "\" is no action: ", fault_form);
  require(!moves_call(fault.kind) || (known && plan::communicates(*known)), what, " ", fault.action,
          ": expected a collective, such as gather(block.1)");
  require(fault.kind != FaultKind::flip || (known && has_target(*known, fault.target)), "\"",
          fault.action, "\" has no ", name_in(flip_target_names, fault.target),
          " to flip a bit of: ", fault_form);
  return fault;
}

void strike(const Fault& fault) {
  switch (fault.kind) {
    case FaultKind::sleep:
    case FaultKind::slow_data:
    case FaultKind::slow_compute:
      return sleep_seconds(fault.seconds);
    case FaultKind::spin: {
      std::atomic<bool> forever{true};
      while (forever.load(std::memory_order_relaxed)) {
      }
      return;
    }
    case FaultKind::stop:
      std::raise(SIGSTOP);
      return;
    case FaultKind::exit:
      std::_Exit(1);
    case FaultKind::skip:
    case FaultKind::swap:
    case FaultKind::flip:
      return;
  }
}

}  // namespace ostrakon::watch
