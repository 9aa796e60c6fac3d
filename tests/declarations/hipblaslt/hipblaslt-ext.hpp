// SPDX-License-Identifier: Apache-2.0
#pragma once

// The functions of hipBLASLt's C++ interface that Ostrakon calls, to compile without it.

#include <hipblaslt/hipblaslt.h>

#include <string>

namespace hipblaslt_ext {

int getIndexFromAlgo(hipblasLtMatmulAlgo_t& algorithm);
std::string getSolutionNameFromAlgo(hipblasLtHandle_t handle, hipblasLtMatmulAlgo_t& algorithm);
hipblasStatus_t matmulIsAlgoSupported(hipblasLtHandle_t handle, hipblasLtMatmulDesc_t operation,
                                      const void* alpha, hipblasLtMatrixLayout_t a,
                                      hipblasLtMatrixLayout_t b, const void* beta,
                                      hipblasLtMatrixLayout_t c, hipblasLtMatrixLayout_t d,
                                      hipblasLtMatmulAlgo_t& algorithm, size_t& workspace_bytes);

}  // namespace hipblaslt_ext
