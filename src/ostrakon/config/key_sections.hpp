// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/config/keys.hpp>

// The sections of a deck, each with its keys. For keys*.cpp alone.

namespace ostrakon::config {

// keys_training.cpp: what is trained, on what, and how
Section model_section();
Section data_section();
Section training_section();
Section optimizer_section();
Section schedule_section();

// keys_parallel.cpp: how ranks share the work, and what saves memory
Section parallel_section();
Section precision_section();
Section memory_section();

// keys_run.cpp: what a run saves and writes, and the machine
Section checkpoint_section();
Section output_section();
Section runtime_section();

}  // namespace ostrakon::config
