// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <ostrakon/simulate/machine.hpp>
#include <string>
#include <vector>

#include "deck_rows.hpp"

namespace ostrakon::published {

/// A number that rows of rows.csv may tell: of a chip, a machine, a stack, or of all.
struct FittedNumber {
  std::string name;        ///< "chip.A100.attention"
  double prior = 1.0;      ///< what is expected without the rows
  double deviation = 0.1;  ///< of its logarithm
};
const std::vector<FittedNumber>& fitted_numbers();

using Numbers = std::map<std::string, double>;
Numbers priors();

/// Rows whose errors make one simulate::ModelError of machines: in Numbers it is error.NAME.faster
/// and error.NAME.slower.
struct ErrorClass {
  const char* name;
  simulate::ModelError simulate::Machine::*error;
};
const std::vector<ErrorClass>& error_classes();
const ErrorClass& error_class_of(const PlannedRow& row);

/// Returns the machine that rows name.
simulate::Machine make_machine(const std::string& name, const Numbers& numbers);
std::vector<std::string> machine_names();

/// Returns the fitted keys of a stack file, and `stack` with these set.
Numbers fitted_keys(const std::string& stack, const Numbers& numbers);
simulate::Stack with_fitted(simulate::Stack stack, const std::string& name, const Numbers& numbers);
const std::vector<std::string>& stack_names();

/// Returns the names of the numbers that a row's time depends on.
std::vector<std::string> numbers_of(const PlannedRow& row);

/// The text of machines/NAME.yaml: each number with where it is from.
std::string machine_text(const std::string& name, const Numbers& numbers);

}  // namespace ostrakon::published
