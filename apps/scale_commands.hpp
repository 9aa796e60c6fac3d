// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The commands of ostrakon-scale. Each throws Error for what can't be done.
namespace ostrakon::apps::scale_program {

constexpr const char* program = "ostrakon-scale";

void plan_study(int argc, char** argv);
void collect_study(int argc, char** argv);
void report_study(int argc, char** argv);

}  // namespace ostrakon::apps::scale_program
