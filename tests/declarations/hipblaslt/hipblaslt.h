/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of hipBLASLt that Ostrakon calls, to compile without it. */
#ifndef OSTRAKON_DECLARATIONS_HIPBLASLT_H
#define OSTRAKON_DECLARATIONS_HIPBLASLT_H

#include <hip/hip_runtime_api.h>
#include <hip/library_types.h>
#include <stdint.h>

#if HIP_VERSION_MAJOR < 6
#define HIP_R_16BF static_cast<hipDataType>(14)
#endif

typedef enum {
  HIPBLAS_STATUS_SUCCESS = 0,
  HIPBLAS_STATUS_INVALID_VALUE = 3,
  HIPBLAS_STATUS_NOT_SUPPORTED = 7
} hipblasStatus_t;
typedef enum { HIPBLAS_OP_N = 111, HIPBLAS_OP_T = 112 } hipblasOperation_t;
typedef enum { HIPBLAS_COMPUTE_32F = 2 } hipblasComputeType_t;

typedef void* hipblasLtHandle_t;
typedef struct hipblasLtMatmulDescOpaque* hipblasLtMatmulDesc_t;
typedef struct hipblasLtMatrixLayoutOpaque* hipblasLtMatrixLayout_t;
typedef struct hipblasLtMatmulPreferenceOpaque* hipblasLtMatmulPreference_t;
struct hipblasLtMatmulAlgo_t {
  uint8_t data[16] = {0};
  size_t max_workspace_bytes = 0;
};
struct hipblasLtMatmulHeuristicResult_t {
  hipblasLtMatmulAlgo_t algo;
  size_t workspaceSize = 0;
  hipblasStatus_t state = HIPBLAS_STATUS_SUCCESS;
  float wavesCount = 1.0F;
  int reserved[4];
};

typedef enum { HIPBLASLT_EPILOGUE_DEFAULT = 1, HIPBLASLT_EPILOGUE_BIAS = 4 } hipblasLtEpilogue_t;
typedef enum {
  HIPBLASLT_MATRIX_LAYOUT_BATCH_COUNT = 0,
  HIPBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET = 1
} hipblasLtMatrixLayoutAttribute_t;
typedef enum {
  HIPBLASLT_MATMUL_DESC_TRANSA = 0,
  HIPBLASLT_MATMUL_DESC_TRANSB = 1,
  HIPBLASLT_MATMUL_DESC_EPILOGUE = 2,
  HIPBLASLT_MATMUL_DESC_BIAS_POINTER = 3,
  HIPBLASLT_MATMUL_DESC_BIAS_DATA_TYPE = 4
} hipblasLtMatmulDescAttributes_t;

extern "C" {
hipblasStatus_t hipblasLtCreate(hipblasLtHandle_t* handle);
hipblasStatus_t hipblasLtDestroy(hipblasLtHandle_t handle);
hipblasStatus_t hipblasLtGetVersion(hipblasLtHandle_t handle, int* version);
hipblasStatus_t hipblasLtMatrixLayoutCreate(hipblasLtMatrixLayout_t* made, hipDataType type,
                                            uint64_t rows, uint64_t columns, int64_t stride);
hipblasStatus_t hipblasLtMatrixLayoutDestroy(hipblasLtMatrixLayout_t layout);
hipblasStatus_t hipblasLtMatrixLayoutSetAttribute(hipblasLtMatrixLayout_t layout,
                                                  hipblasLtMatrixLayoutAttribute_t which,
                                                  const void* value, size_t bytes);
hipblasStatus_t hipblasLtMatmulDescCreate(hipblasLtMatmulDesc_t* made, hipblasComputeType_t sums,
                                          hipDataType scales);
hipblasStatus_t hipblasLtMatmulDescDestroy(hipblasLtMatmulDesc_t operation);
hipblasStatus_t hipblasLtMatmulDescSetAttribute(hipblasLtMatmulDesc_t operation,
                                                hipblasLtMatmulDescAttributes_t which,
                                                const void* value, size_t bytes);
hipblasStatus_t hipblasLtMatmulPreferenceCreate(hipblasLtMatmulPreference_t* made);
hipblasStatus_t hipblasLtMatmulPreferenceDestroy(hipblasLtMatmulPreference_t preference);
hipblasStatus_t hipblasLtMatmulAlgoGetHeuristic(
    hipblasLtHandle_t handle, hipblasLtMatmulDesc_t operation, hipblasLtMatrixLayout_t a,
    hipblasLtMatrixLayout_t b, hipblasLtMatrixLayout_t c, hipblasLtMatrixLayout_t d,
    hipblasLtMatmulPreference_t preference, int most, hipblasLtMatmulHeuristicResult_t found[],
    int* count);
hipblasStatus_t hipblasLtMatmul(hipblasLtHandle_t handle, hipblasLtMatmulDesc_t operation,
                                const void* alpha, const void* a, hipblasLtMatrixLayout_t of_a,
                                const void* b, hipblasLtMatrixLayout_t of_b, const void* beta,
                                const void* c, hipblasLtMatrixLayout_t of_c, void* d,
                                hipblasLtMatrixLayout_t of_d, const hipblasLtMatmulAlgo_t* by,
                                void* workspace, size_t workspace_bytes, hipStream_t stream);
}

#endif
