/* Sums of squares, and sums that take a buffer away (base/reduce.h). */
#include "check.h"

#include <math.h>

#include "base/reduce.h"

enum { N = 5000 };
static float x[N];

/* By how much of it the sum is wrong; in double, which holds the square of each float. */
static double wrong(double sum, size_t n)
{
    double right = 0;

    for (size_t i = 0; i < n; i++) {
        right += (double)x[i] * (double)x[i];
    }
    return right > 0 ? fabs(sum / right - 1) : sum;
}

TEST(sums_of_squares)
{
    static const size_t n[] = {0, 1, 31, 511, 512, 513, 1100, 4096, N};
    static const float size[] = {1, 1e-5F, 1e-18F, 1e-30F, 1e18F, 1e30F};

    for (size_t k = 0; k < COUNT(size); k++) {
        for (size_t i = 0; i < N; i++) {
            x[i] = size[k] * ((float)(i * 7919 % 1009) / 1009 - 0.4F);
        }
        for (size_t i = 0; i < COUNT(n); i++) {
            double all = wrong(cmn_sum_of_squares(x, n[i]), n[i]);
            double near = wrong(cmn_sum_of_squares_near(x, n[i]), n[i]);
            if (!(all < 1e-13 && near < 2e-7)) {
                fail_msg("%zu floats of %g: %g and %g away", n[i], (double)size[k], all, near);
            }
        }
    }
}

TEST(not_finite)
{
    for (size_t i = 0; i < N; i++) {
        x[i] = 1;
    }
    x[700] = INFINITY;
    assert_true(isinf(cmn_sum_of_squares_near(x, N)));
    x[700] = NAN;
    assert_true(isnan(cmn_sum_of_squares_near(x, N)));
}

TEST(takes_the_first_away)
{
    static float a[N], b[N], c[N], into[N];
    float *const buffer[] = {a, b, c};

    for (int buffers = 1; buffers <= (int)COUNT(buffer); buffers++) {
        for (int apart = buffers == 1; apart < 2; apart++) { /* else b becomes the sum */
            for (size_t i = 0; i < N; i++) {
                a[i] = (float)(i % 97) / 7;
                b[i] = (float)i * 1e-5F;
                c[i] = 1e3F / (float)(i + 1);
                into[i] = -1;
            }
            cmn_reduce_away(apart ? into : b, buffer, buffers, N - 1);
            for (size_t i = 0; i < N - 1; i++) {
                float sum = (float)(i % 97) / 7;
                sum = buffers > 1 ? sum + (float)i * 1e-5F : sum;
                sum = buffers > 2 ? sum + 1e3F / (float)(i + 1) : sum;
                assert_true(a[i] == 0 && (apart ? into : b)[i] == sum);
                assert_true(!apart || b[i] == (float)i * 1e-5F);
            }
            assert_true(into[N - 1] == -1 && a[N - 1] == (float)((N - 1) % 97) / 7);
        }
    }
}

TESTS(NULL, NULL)
