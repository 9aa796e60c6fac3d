// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/config/keys.hpp>

// The sections of a deck, each with its keys. Only keys*.cpp include this file.

namespace ostrakon::config {

// keys_training.cpp: the model, its data, and how it is trained
Section model_section();
Section data_section();
Section training_section();
Section optimizer_section();
Section schedule_section();

// keys_parallel.cpp: how ranks share the work, and how memory is saved
Section parallel_section();
Section precision_section();
Section memory_section();

// keys_run.cpp: the files that a run writes, and the machine
Section checkpoint_section();
Section output_section();
Section runtime_section();

}  // namespace ostrakon::config
