// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/kernel_form.hpp>
#include <ostrakon/plan/timing/timing.hpp>
#include <ostrakon/scaling/study.hpp>
#include <ostrakon/tune/choose.hpp>

#include "../common/options.hpp"

namespace ostrakon::apps::plan_program {

/// What the command line says.
struct Line {
  std::string deck;
  std::vector<config::Override> overrides;
  int ranks = 1;
  int ranks_per_node = 0;  ///< 0: as the deck says
  std::optional<math::KernelForm> device;
  bool json = false;
  bool kernels = false;
  std::string why;  ///< --why
  std::string svg, html, trace;
  std::string machine;  ///< --time
  std::string stack;    ///< --stack
  bool brief = false;
  std::vector<int> sweep;
  scaling::Scaling scaling = scaling::Scaling::weak;
  bool csv = false;
  bool chooses = false;
  tune::Memory room;  ///< 0: not given
  bool any_precision = false;
  bool exhaustive = false;
  std::string output;
  std::vector<std::string> place;  ///< options that say what a step runs on, with their values
  bool has_rates = false;          ///< any of the following is given
  double gflops = 100000.0;
  double gigabytes_per_second = 25.0;
  double copy_gigabytes_per_second = 25.0;
  double host_gigabytes_per_second = 12.0;

  plan::Rates rates() const;
};

/// `run` is called with the completed line.
Program program_of(Line& line, const std::function<void(const Line&)>& run);

}  // namespace ostrakon::apps::plan_program
