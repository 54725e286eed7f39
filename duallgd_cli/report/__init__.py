"""Results for people: one page of a finished run, and how single candidates were denoised."""
