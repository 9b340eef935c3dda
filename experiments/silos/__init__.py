"""Ten silos whose noise protects single records."""
